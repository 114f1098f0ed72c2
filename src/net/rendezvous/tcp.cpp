#include "net/rendezvous/tcp.h"

#include <sys/socket.h>

#include <algorithm>

#include "base/mutex.h"
#include "net/rendezvous/backoff.h"
#include "net/rendezvous/codec.h"
#include "net/rendezvous/report.h"
#include "net/rendezvous/sockets.h"
#include "net/rendezvous/tcp_host.h"
#include "net/trust/handshake.h"

namespace farad::net {
namespace {

using namespace std::chrono_literals;
using base::Code;
using base::Status;
using meeting::Address;
using meeting::Answer;

constexpr base::Duration longest_pause = 50ms;  // Between two tries to connect.
constexpr base::Duration longest_try = 5s;      // For one of them, and as long as the host has for a stranger.

class TcpRendezvous final : public Rendezvous {
 public:
  TcpRendezvous(Place place, base::Rank self, base::Runtime& runtime)
      : place_(std::move(place)), hosts_(self.value == 0), runtime_(runtime), parker_(runtime.make_parker()) {}
  ~TcpRendezvous() override { close(); }

  Status join(const JoinRequest& request, std::vector<Member>& members, bool& rejoined) override {
    {
      base::Lock lock(mutex_);
      if (closed_) return report(place_, request.self, closed_meanwhile());
      joining_ = true;
    }
    auto status = meet(request, members, rejoined);
    {
      base::Lock lock(mutex_);
      joining_ = false;
      if (closed_) status = closed_meanwhile();
    }
    if (!status.ok()) leave();
    return report(place_, request.self, status);
  }

  void close() override {
    {
      base::Lock lock(mutex_);
      if (std::exchange(closed_, true)) return;
      if (joining_) {
        if (socket_) ::shutdown(socket_.get(), SHUT_RDWR);
        parker_->unpark();
        return;  // Who joins has the rest, and leaves.
      }
    }
    leave();
  }

 private:
  Status meet(const JoinRequest& request, std::vector<Member>& members, bool& rejoined) {
    Backoff backoff(longest_pause);
    while (true) {
      // While somebody else has the port we ask him: another rank 0 will tell us and the others that there are two. If
      // it was our own former life, the port is free soon.
      auto status = hosts_ && !host_ ? hold(request) : Status();
      if (status.ok() || status.code() == Code::Busy) status = attend(request, members, rejoined);
      if (status.code() != Code::PeerLost) return status;

      const auto now = runtime_.now();
      if (now >= request.deadline) return give_up(status);
      parker_->park(std::min(request.deadline, now + backoff.next()));
      base::Lock lock(mutex_);
      if (closed_) return closed_meanwhile();
    }
  }

  Status hold(const JoinRequest& request) {
    base::Fd listener;
    auto status = meeting::listen_at(place_.where, place_.port, request.secret, listener, reach_);
    if (status.ok()) host_ = std::make_unique<TcpHost>(std::move(listener), request, runtime_);
    return status;
  }

  /// One try. PeerLost: there may be another.
  Status attend(const JoinRequest& request, std::vector<Member>& members, bool& rejoined) {
    const auto try_until = std::min(request.deadline, runtime_.now() + longest_try);
    base::Fd connected;
    if (auto status = connect(request, try_until, connected); !status.ok()) return status;
    const int socket = connected.get();
    {
      base::Lock lock(mutex_);
      if (closed_) return closed_meanwhile();
      socket_ = std::move(connected);
    }
    auto status = shake_hands(socket, Handshake::Role::Connector, request.secret, rendezvous_purpose, try_until);
    if (status.code() == Code::Timeout) return {Code::PeerLost, status.message()};
    if (!status.ok()) return status;
    status = meeting::send_frame(
        socket, encode(meeting::Ask{request.self, request.size, patience_ms(request.deadline)}), try_until);
    while (status.ok()) {
      std::string payload;
      Answer answer;
      status = meeting::receive_frame(socket, meeting::answer_bytes, request.deadline, payload);
      if (status.ok()) status = decode(payload, answer);
      if (!status.ok()) break;
      if (answer.kind == Answer::Kind::Refused) return answer.status;
      if (answer.kind == Answer::Kind::Seated) host_name_ = answer.host;
      if (answer.kind == Answer::Kind::Complete) {
        members = std::move(answer.members);
        rejoined = answer.rejoined;
        return {};
      }
    }
    return status.code() == Code::Timeout ? Status(Code::PeerLost, status.message()) : status;
  }

  Status connect(const JoinRequest& request, base::TimePoint until, base::Fd& out) {
    std::vector<Address> candidates{reach_};
    if (!host_) {
      if (auto status = meeting::resolve(place_.where, place_.port, candidates); !status.ok()) return status;
    }
    Status status;
    for (const auto& candidate : candidates) {
      status = meeting::connect_to(candidate, request.secret, until, out);
      if (status.ok() || status.code() == Code::Denied) return status;
    }
    return {Code::PeerLost, status.message()};
  }

  /// A little less than we have, so that the host's answer, which names who is missing, is here in time.
  int64_t patience_ms(base::TimePoint deadline) const {
    if (deadline == base::never) return -1;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - runtime_.now());
    return std::max<int64_t>(0, (left - std::min(left / 10, 250ms)).count());
  }

  Status give_up(const Status& last) const {
    const std::string host = host_name_.empty() ? "rank 0" : "rank 0 (\"" + host_name_ + "\")";
    const std::string fate = host_name_.empty() ? " did not come in time" : " is gone";
    return {Code::Timeout, "missing: " + host + ", which holds the meeting," + fate + " (" + last.message() +
                               "). Was it started, with this rendezvous?"};
  }

  void leave() {
    host_.reset();
    base::Lock lock(mutex_);
    socket_.reset();
  }

  // Constant after construction.
  const Place place_;
  const bool hosts_;
  base::Runtime& runtime_;
  const std::unique_ptr<base::Parker> parker_;

  // Of the thread in join(), later of the one in close().
  std::unique_ptr<TcpHost> host_;
  Address reach_;  // Where our own host listens.
  std::string host_name_;

  base::Mutex mutex_;
  base::Fd socket_ GUARDED_BY(mutex_);  // Open while we live: that is how the host knows.
  bool joining_ GUARDED_BY(mutex_) = false;
  bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace

std::unique_ptr<Rendezvous> make_tcp_rendezvous(Place place, base::Rank self, base::Runtime& runtime) {
  return std::make_unique<TcpRendezvous>(std::move(place), self, runtime);
}

}  // namespace farad::net
