#include "run/streams.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace farad::run {
namespace {

constexpr auto unwatched = Streams::TimePoint::max();
// A prompt has no newline; somebody at a terminal wants to see it.
constexpr auto show_partial_after = std::chrono::milliseconds(100);

bool tagged(const RunOptions& options, const Output& output) { return options.tag_output.value_or(output.terminal()); }

bool ready(const std::vector<pollfd>& polled, int fd) {
  return std::any_of(polled.begin(), polled.end(),
                     [fd](const pollfd& one) { return one.fd == fd && one.revents != 0; });
}

}  // namespace

Streams::Streams(const RunOptions& options, bool colours)
    : out_(STDOUT_FILENO),
      err_(STDERR_FILENO),
      out_lines_(out_, options.workers, tagged(options, out_), colours && out_.terminal()),
      err_lines_(err_, options.workers, tagged(options, err_), colours && err_.terminal()) {}

void Streams::add(int rank, base::Fd out, base::Fd err) {
  streams_.push_back({rank, std::move(out), &out_, &out_lines_, unwatched});
  streams_.push_back({rank, std::move(err), &err_, &err_lines_, unwatched});
}

void Streams::watch(std::vector<pollfd>& polled) const {
  for (const auto& stream : streams_) {
    if (!stream.output->full()) polled.push_back({stream.fd.get(), POLLIN, 0});
  }
  for (const auto* output : {&out_, &err_}) {
    if (!output->empty()) polled.push_back({output->fd(), POLLOUT, 0});
  }
}

void Streams::handle(const std::vector<pollfd>& polled, TimePoint now) {
  for (auto* output : {&out_, &err_}) {
    if (!output->empty() && ready(polled, output->fd())) output->write_some();
  }
  std::erase_if(streams_, [&](Stream& stream) {
    if (stream.output->full()) return false;
    if (!last_reads_ && !ready(polled, stream.fd.get())) return false;
    if (read_from(stream, now)) return false;
    stream.lines->end(stream.rank);
    return true;
  });
  show_overdue(now);
}

bool Streams::read_from(Stream& stream, TimePoint now) {
  std::array<char, size_t{64} << 10> bytes;
  const auto count = ::read(stream.fd.get(), bytes.data(), bytes.size());
  if (count < 0 && (errno == EINTR || errno == EAGAIN)) return !(last_reads_ && errno == EAGAIN);
  if (count <= 0) return false;
  stream.lines->take(stream.rank, {bytes.data(), static_cast<size_t>(count)});
  const bool watched = stream.output->terminal() && stream.lines->has_partial(stream.rank);
  stream.shown_by = watched ? now + show_partial_after : unwatched;
  return true;
}

void Streams::show_overdue(TimePoint now) {
  for (auto& stream : streams_) {
    if (stream.shown_by > now) continue;
    stream.lines->flush(stream.rank);
    stream.shown_by = unwatched;
  }
}

Streams::TimePoint Streams::deadline() const {
  auto first = unwatched;
  if (last_reads_) {
    for (const auto& stream : streams_) {
      if (!stream.output->full()) return {};
    }
  }
  for (const auto& stream : streams_) first = std::min(first, stream.shown_by);
  return first;
}

void Streams::expect_no_more() { last_reads_ = true; }

}  // namespace farad::run
