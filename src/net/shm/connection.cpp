#include "net/shm/connection.h"

#include <array>
#include <utility>

namespace farad::net {
namespace {

constexpr int most_pieces = 16;
/// Bytes are given back to the writer in portions, so that both sides work at once on a long message.
constexpr size_t portion = 256 << 10;

}  // namespace

ShmConnection::ShmConnection(Peer p, uint32_t s, const wire::Limits& limits, std::shared_ptr<wire::BufferPool> pool,
                             size_t queue_bytes)
    : peer(p), slot(s), limits_(limits), queue_bytes_(queue_bytes), incoming_(limits, std::move(pool)) {}

ShmConnection::State ShmConnection::state() const {
  base::Lock lock(mutex_);
  return state_;
}

std::shared_ptr<ShmLink> ShmConnection::link() const {
  base::Lock lock(mutex_);
  return link_;
}

base::Status ShmConnection::send(wire::Message& message, bool urgent) {
  std::shared_ptr<ShmLending> lending;
  {
    base::Lock lock(mutex_);
    if (state_ == State::Over) return {base::Code::Closed, "[shm] this connection is over"};
    if (!urgent && queued_bytes_ >= queue_bytes_) {
      return {base::Code::Busy,
              "[shm] " + std::to_string(queued_bytes_) + " bytes wait for rank " + std::to_string(peer.rank.value)};
    }
    lending = lending_;
  }
  // Not under the lock: tensors that are lent are copied here.
  wire::Outgoing out;
  if (auto status = wire::Outgoing::make(message, limits_, out, lending.get()); !status.ok()) return status;
  base::Lock lock(mutex_);
  if (state_ == State::Over) return {};  // Ended just now: it shares the fate of all that was on its way.
  queued_bytes_ += out.size();
  const bool first = queue_.empty();
  queue_.push_back(std::move(out));
  if (state_ == State::Open && first) write_queued();
  if (!queue_.empty()) queue_.back().hold();  // Not written at once: its owner goes on while it waits here.
  return {};
}

void ShmConnection::finish_front() {
  auto& front = queue_.front();
  if (!front.verdict().ok()) unsent_.push_back({front.kind(), front.tag(), front.verdict()});
  queued_bytes_ -= front.size();
  queue_.pop_front();
}

void ShmConnection::write_queued() {
  bool wrote = false;
  while (!queue_.empty()) {
    std::array<iovec, most_pieces> pieces;
    auto& front = queue_.front();
    const int count = front.gather(pieces.data(), most_pieces);
    const size_t n = link_->writer.write({pieces.data(), static_cast<size_t>(count)});
    front.advance(n);
    wrote |= n > 0;
    if (front.done()) {
      finish_front();
    } else if (n == 0 && link_->writer.wait_for_room()) {
      break;
    }
  }
  if (wrote) link_->ring_peer();
}

bool ShmConnection::open(std::shared_ptr<ShmLink> link, std::shared_ptr<ShmLending> lending) {
  base::Lock lock(mutex_);
  if (state_ != State::Connecting) return false;
  link_ = std::move(link);
  lending_ = std::move(lending);
  state_ = State::Open;
  write_queued();
  return true;
}

void ShmConnection::doom(base::Status why) {
  base::Lock lock(mutex_);
  if (doom_.ok()) doom_ = std::move(why);
}

bool ShmConnection::flush(Sink& sink) {
  std::vector<Unsent> unsent;
  bool did = false;
  {
    base::Lock lock(mutex_);
    if (state_ != State::Open) return false;
    const size_t before = queued_bytes_;
    if (!queue_.empty()) write_queued();
    did = queued_bytes_ != before;
    unsent.swap(unsent_);
  }
  for (auto& one : unsent) sink.on_unsent(peer, one.kind, one.tag, one.why);
  return did || !unsent.empty();
}

bool ShmConnection::take_in(Sink& sink, int budget, bool& did) {
  std::shared_ptr<ShmLink> link;
  {
    base::Lock lock(mutex_);
    if (!link_) return false;
    link = link_;
    incoming_.borrow_from(lending_.get());
  }
  while (budget > 0) {
    std::span<const char> bytes;
    auto status = link->reader.peek(bytes);
    if (status.ok() && bytes.empty()) return false;
    did = true;
    size_t consumed = 0;
    if (status.ok()) status = incoming_.feed(bytes.first(std::min(bytes.size(), portion)), consumed);
    if (!status.ok()) {
      doom(base::Status(status.code(), "it sent what is no message of ours: " + status.message()));
      return false;
    }
    if (link->reader.consume(consumed)) link->ring_peer();
    if (!incoming_.complete()) continue;
    const bool torn = incoming_.torn();
    auto message = incoming_.take();
    --budget;
    if (!torn) sink.on_message(peer, std::move(message));
  }
  return true;
}

bool ShmConnection::doomed() {
  base::Lock lock(mutex_);
  if (doom_.ok() && link_ && link_->page().over.load(std::memory_order_acquire)) {
    doom_ = base::Status(base::Code::PeerLost, "it ended the connection");
  }
  return !doom_.ok();
}

base::Status ShmConnection::end() {
  base::Lock lock(mutex_);
  state_ = State::Over;
  queue_.clear();
  if (link_) {
    link_->page().over.store(1, std::memory_order_release);
    link_->ring_peer();
  }
  return doom_;
}

}  // namespace farad::net
