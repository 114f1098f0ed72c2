#include "net/rendezvous/tcp_host.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <vector>

#include "net/rendezvous/report.h"
#include "net/rendezvous/sockets.h"
#include "net/trust/policy.h"

namespace farad::net {

using namespace std::chrono_literals;
using base::Code;
using base::Status;
using meeting::Answer;

namespace {

constexpr auto introduction_time = 5s;  // For handshake and request together.
constexpr auto leaving_time = 2s;       // To read a last word.
constexpr auto accept_pause = 100ms;    // When there are no descriptors.
constexpr size_t most_strangers = 256;  // Those who were turned away and still read why among them.
constexpr int64_t most_patience_ms = int64_t{1000} * 3600 * 24 * 365;

}  // namespace

struct TcpHost::Guest {
  Guest(base::Fd s, std::string address, const Secret& secret, base::TimePoint now)
      : socket(std::move(s)),
        from(std::move(address)),
        handshake(Handshake::Role::Acceptor, secret, rendezvous_purpose),
        until(now + introduction_time) {}

  bool stranger() const { return stage == Stage::Greeting || stage == Stage::Asking; }
  bool sits() const { return stage == Stage::Seated || stage == Stage::Settled; }

  base::Fd socket;  // Closed: the guest is gone and will be swept out.
  std::string from;
  Handshake handshake;
  Stage stage = Stage::Greeting;
  base::TimePoint until;  // When the stage ends by itself.
  std::string in;
  std::string out;
  meeting::Ask ask;  // From Held on.
  base::TimePoint patience = base::never;
  bool rejoined = false;
  bool ready = false;  // The last poll found something.
};

TcpHost::TcpHost(base::Fd listener, const JoinRequest& self, base::Runtime& runtime)
    : self_(self),
      runtime_(runtime),
      log_(self.self.name, base::log_level(base::Environment::process())),
      listener_(std::move(listener)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      listen_again_(runtime.now()) {
  // The host's own size is the measure for the others, so it is the first to sit. It then connects like everybody else.
  bool rejoined = false;
  if (const auto status = roster_.admit(self_.self, self_.size, rejoined); !status.ok()) fail(status);
  thread_ = runtime_.start("farad-meet", [this] { run(); });
}

TcpHost::~TcpHost() {
  stop_.store(true, std::memory_order_release);
  ::eventfd_write(wake_.get(), 1);
  thread_.reset();
}

void TcpHost::run() {
  while (!stop_.load(std::memory_order_acquire)) {
    wait_for_events();
    // Ends are noticed before newcomers are, so that a worker that was restarted finds its seat free.
    for (auto& guest : guests_)
      if (guest.ready) receive(guest);
    const auto now = runtime_.now();
    for (auto& guest : guests_)
      if (guest.socket && guest.until <= now) on_time_up(guest);
    settle();
    accept_all();
    for (auto& guest : guests_) flush(guest);
    guests_.remove_if([](const Guest& guest) { return !guest.socket; });
  }
  farewell();
}

base::TimePoint TcpHost::next_event() const {
  auto next = base::never;
  for (const auto& guest : guests_) next = std::min(next, guest.until);
  if (listen_again_ > runtime_.now()) next = std::min(next, listen_again_);
  if (failed_at_ != base::never && failed_at_ + linger_after_failure > runtime_.now())
    next = std::min(next, failed_at_ + linger_after_failure);
  return next;
}

void TcpHost::wait_for_events() {
  const auto now = runtime_.now();
  std::vector<pollfd> polled{{wake_.get(), POLLIN, 0}};
  if (listen_again_ <= now) polled.push_back({listener_.get(), POLLIN, 0});
  const size_t first_guest = polled.size();
  for (const auto& guest : guests_)
    polled.push_back({guest.socket.get(), static_cast<short>(guest.out.empty() ? POLLIN : POLLIN | POLLOUT), 0});

  int wait_ms = -1;
  if (const auto next = next_event(); next != base::never)
    wait_ms = static_cast<int>(
        std::clamp<int64_t>(std::chrono::ceil<std::chrono::milliseconds>(next - now).count(), 0, 60'000));
  const int found = ::poll(polled.data(), polled.size(), wait_ms);
  size_t i = first_guest;
  for (auto& guest : guests_) guest.ready = found > 0 && (polled[i++].revents & ~POLLOUT) != 0;
}

void TcpHost::accept_all() {
  while (listen_again_ <= runtime_.now()) {
    sockaddr_storage storage{};
    socklen_t length = sizeof(storage);
    auto& address = reinterpret_cast<sockaddr&>(storage);
    base::Fd socket(::accept4(listener_.get(), &address, &length, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno != EAGAIN) {  // No descriptors, most likely. Polling on would spin.
        make_room();
        listen_again_ = runtime_.now() + accept_pause;
      }
      return;
    }
    if (!may_talk(self_.secret, address).ok()) continue;
    meeting::set_options(socket.get());
    auto& guest = guests_.emplace_back(std::move(socket), to_text(address), self_.secret, runtime_.now());
    guest.out = guest.handshake.take_output();
    const auto is_stranger = [](const Guest& g) { return g.socket && (g.stranger() || g.stage == Stage::Leaving); };
    if (std::count_if(guests_.begin(), guests_.end(), is_stranger) > static_cast<std::ptrdiff_t>(most_strangers))
      make_room();
  }
}

void TcpHost::make_room() {
  // The oldest one has had the most time to say who it is, or to go. If it is one of us it comes again.
  const auto in = [this](Stage stage) {
    return std::find_if(guests_.begin(), guests_.end(), [&](const Guest& g) { return g.socket && g.stage == stage; });
  };
  auto oldest = in(Stage::Leaving);  // All that it misses is its last word, and most have read that by now.
  if (oldest != guests_.end()) flush(*oldest);
  if (oldest == guests_.end()) oldest = in(Stage::Greeting);
  if (oldest == guests_.end()) oldest = in(Stage::Asking);
  if (oldest == guests_.end()) return;
  log_.info("[net] rendezvous: dropped ", oldest->from, " because there are too many strangers");
  drop(*oldest);
}

void TcpHost::receive(Guest& guest) {
  // Once per round: who sends without end waits for his turn like everybody else.
  char bytes[4096];
  const size_t most = guest.stage == Stage::Greeting ? guest.handshake.wants() : sizeof(bytes);
  const ssize_t n = ::recv(guest.socket.get(), bytes, std::min(most, sizeof(bytes)), 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) return drop(guest);
  on_bytes(guest, {bytes, static_cast<size_t>(n)});
}

void TcpHost::on_bytes(Guest& guest, std::string_view bytes) {
  if (guest.stage == Stage::Greeting) {
    size_t consumed = 0;
    const auto status = guest.handshake.feed(bytes, consumed);
    guest.out += guest.handshake.take_output();
    if (!status.ok()) return turn_away(guest, status);
    if (guest.handshake.done()) guest.stage = Stage::Asking;
    return;
  }
  if (guest.stage == Stage::Leaving) return;  // It has been told what we think of it.
  if (guest.stage != Stage::Asking)
    return turn_away(guest, {Code::Protocol, describe(guest.ask.self) + " spoke out of turn"});

  guest.in.append(bytes);
  if (guest.in.size() < meeting::frame_header) return;
  const size_t length = meeting::frame_length(guest.in);
  if (length > meeting::ask_bytes)
    return turn_away(guest, {Code::Protocol, "a request of " + std::to_string(length) + " bytes is too long"});
  if (guest.in.size() < meeting::frame_header + length) return;
  if (guest.in.size() > meeting::frame_header + length)
    return turn_away(guest, {Code::Protocol, "bytes follow the request"});
  on_ask(guest);
}

void TcpHost::on_ask(Guest& guest) {
  const auto status = decode(std::string_view(guest.in).substr(meeting::frame_header), guest.ask);
  guest.in = {};
  if (!status.ok()) return turn_away(guest, status);
  if (guest.ask.patience_ms >= 0)
    guest.patience =
        runtime_.now() + std::chrono::milliseconds(std::min<int64_t>(guest.ask.patience_ms, most_patience_ms));
  if (roster_.failure().ok() && roster_.rival(guest.ask.self)) {
    guest.stage = Stage::Held;
    guest.until = std::min(guest.patience, runtime_.now() + rival_grace);
    return;
  }
  seat(guest);
}

void TcpHost::seat(Guest& guest) {
  const Member& self = guest.ask.self;
  if (const auto status = roster_.admit(self, guest.ask.size, guest.rejoined); !status.ok()) {
    if (!roster_.failure().ok()) fail(status);
    // The host's own hears of it last: see settle().
    if (roster_.failure().ok() || !is_host(guest)) return refuse(guest, status);
  }
  for (auto& other : guests_) {  // A former connection of the same worker, broken on its side but not yet on ours.
    if (&other != &guest && other.sits() && other.ask.self.rank == self.rank) other.socket.reset();
  }
  guest.stage = Stage::Seated;
  guest.until = guest.patience;
  say(guest, {.kind = Answer::Kind::Seated, .host = self_.self.name});
  if (roster_.full()) roster_.seal();
}

void TcpHost::on_time_up(Guest& guest) {
  switch (guest.stage) {
    case Stage::Greeting:
    case Stage::Asking:
      return turn_away(guest, {Code::Timeout, "did not say who it is"});
    case Stage::Held:
      return seat(guest);  // The rival lives, so now one of them is wrong.
    case Stage::Seated:
      if (is_host(guest)) fail(time_up());  // Without a host there is no meeting.
      return refuse(guest, time_up());
    case Stage::Settled:
      return;
    case Stage::Leaving:
      return drop(guest);
  }
}

void TcpHost::fail(const Status& why) {
  if (failed_at_ != base::never) return;
  failed_at_ = runtime_.now();
  roster_.spoil(why);
}

Status TcpHost::time_up() const {
  if (!roster_.failure().ok()) return roster_.failure();
  auto status = timed_out(roster_.missing());
  if (turned_away_.empty()) return status;
  return {status.code(), status.message() + " Somebody was turned away: " + turned_away_};
}

/// Brings what has changed to those who wait for it.
void TcpHost::settle() {
  for (auto& guest : guests_)
    if (guest.stage == Stage::Held && guest.socket && (!roster_.rival(guest.ask.self) || !roster_.failure().ok()))
      seat(guest);

  if (!roster_.failure().ok()) {
    for (auto& guest : guests_)
      if (guest.stage == Stage::Seated && guest.socket && !is_host(guest)) refuse(guest, roster_.failure());
    // When rank 0 hears of it, it closes, and then nobody tells the late ones why nobody is here.
    roster_.told(self_.self.rank);
    if (!roster_.all_told() && runtime_.now() < failed_at_ + linger_after_failure) return;
    for (auto& guest : guests_)
      if (guest.stage == Stage::Seated && guest.socket) refuse(guest, roster_.failure());
    return;
  }

  if (!roster_.sealed()) return;
  std::string texts[2];  // For all of them the same but for whether they rejoined, so it is encoded once.
  for (auto& guest : guests_) {
    if (guest.stage != Stage::Seated || !guest.socket) continue;
    std::string& text = texts[guest.rejoined ? 1 : 0];
    if (text.empty())
      text = meeting::frame(
          encode(Answer{.kind = Answer::Kind::Complete, .members = roster_.members(), .rejoined = guest.rejoined}));
    guest.out += text;
    guest.stage = Stage::Settled;
    guest.until = base::never;
  }
}

void TcpHost::farewell() {
  const Status over(Code::PeerLost, "rank 0 (\"" + self_.self.name + "\"), which holds the meeting, left it");
  for (auto& guest : guests_) {
    const bool waits = guest.stage == Stage::Seated || guest.stage == Stage::Held;
    if (waits && guest.socket) refuse(guest, over);
    flush(guest);
  }
}

void TcpHost::say(Guest& guest, const Answer& answer) { guest.out += meeting::frame(encode(answer)); }

void TcpHost::flush(Guest& guest) {
  while (guest.socket && !guest.out.empty()) {
    const ssize_t n = ::send(guest.socket.get(), guest.out.data(), guest.out.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) return drop(guest);
    guest.out.erase(0, static_cast<size_t>(n));
  }
  if (guest.stage == Stage::Leaving && guest.socket) ::shutdown(guest.socket.get(), SHUT_WR);
}

void TcpHost::refuse(Guest& guest, const Status& why) {
  say(guest, {.kind = Answer::Kind::Refused, .status = why});
  if (!roster_.failure().ok()) roster_.told(guest.ask.self.rank);
  if (guest.sits()) roster_.leave(guest.ask.self.rank, guest.ask.self.birth);
  guest.stage = Stage::Leaving;
  guest.until = runtime_.now() + leaving_time;
}

void TcpHost::turn_away(Guest& guest, const Status& why) {
  turned_away_ = guest.from + " (" + why.message() + ")";
  log_.warning("[net] rendezvous: turned ", turned_away_, " away");
  if (guest.stage == Stage::Asking) return refuse(guest, why);  // One of us, so it may know.
  if (guest.stage != Stage::Greeting) return drop(guest);
  guest.stage = Stage::Leaving;  // The handshake may have a last word for it.
  guest.until = runtime_.now() + leaving_time;
}

void TcpHost::drop(Guest& guest) {
  if (guest.sits()) roster_.leave(guest.ask.self.rank, guest.ask.self.birth);
  guest.socket.reset();
}

bool TcpHost::is_host(const Guest& guest) const {
  return guest.ask.self.rank == self_.self.rank && guest.ask.self.birth == self_.self.birth;
}

}  // namespace farad::net
