#include "shared/broker.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/environment.h"
#include "base/log.h"
#include "base/thread_census.h"
#include "shared/no_fork.h"
#include "shm/fd.h"

namespace farad::shared {
namespace {

using namespace std::chrono_literals;

/// How long one that asks may take to be told, or we to be asked: both are on this machine.
constexpr auto patience = 5s;
constexpr auto pause_between_tries = 5ms;

base::Status address_of(const std::string& name, sockaddr_un& address, socklen_t& size) {
  const std::string full = "farad-model:" + name;
  if (name.empty() || full.size() + 1 > sizeof address.sun_path) {
    return {base::Code::Invalid, "[shared] \"" + name + "\" cannot be the name of a model: between 1 and " +
                                     std::to_string(sizeof address.sun_path - 1 - (full.size() - name.size())) +
                                     " bytes can"};
  }
  address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, full.data(), full.size());  // A leading zero makes it abstract.
  size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + full.size());
  return {};
}

/// `out` stays empty if somebody has the name, or nobody.
base::Status bind_to(const std::string& name, base::Fd& out) {
  sockaddr_un address;
  socklen_t size = 0;
  if (auto status = address_of(name, address, size); !status.ok()) return status;
  base::Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return shm::system_error("socket");
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0) return {};
  if (::listen(socket.get(), 64) != 0) return shm::system_error("listen");
  out = std::move(socket);
  return {};
}

/// `out` stays empty if nobody has the name, or whoever has it is asked by too many at once: it never waits for him.
base::Status connect_to(const std::string& name, base::Fd& out) {
  sockaddr_un address;
  socklen_t size = 0;
  if (auto status = address_of(name, address, size); !status.ok()) return status;
  base::Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return shm::system_error("socket");
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0) out = std::move(socket);
  return {};
}

/// Abstract names have no permissions.
bool is_same_user(int socket) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == ::geteuid();
}

base::Status receive(int socket, base::TimePoint deadline, base::Fd& memory, uint64_t& size) {
  if (!is_same_user(socket)) return {base::Code::Denied, "[shared] the model of that name is another user's"};
  std::string bytes;
  std::vector<base::Fd> fds;
  auto status =
      shm::receive_with_fds(socket, sizeof size, 1, bytes, fds, std::min(deadline, base::Clock::now() + patience));
  if (!status.ok()) return status;
  std::memcpy(&size, bytes.data(), sizeof size);
  memory = std::move(fds.front());
  return {};
}

base::Fd make_eventfd() {
  base::Fd made(::eventfd(0, EFD_CLOEXEC));
  if (!made) shm::system_error("eventfd").raise();
  return made;
}

bool is_same_memory(int one, int other) {
  struct stat a{}, b{};
  return ::fstat(one, &a) == 0 && ::fstat(other, &b) == 0 && a.st_ino == b.st_ino && a.st_dev == b.st_dev;
}

}  // namespace

base::Status Broker::check(const std::string& name) {
  sockaddr_un address;
  socklen_t size = 0;
  return address_of(name, address, size);
}

base::Status Broker::offer(const std::string& name, std::shared_ptr<Segment> segment, std::unique_ptr<Broker>& out) {
  base::Fd listening;
  if (auto status = bind_to(name, listening); !status.ok()) return status;
  if (!listening) return {base::Code::Invalid, "[shared] there is a model called \"" + name + "\" already"};
  out.reset(new Broker(name, std::move(segment), std::move(listening), {}));
  return {};
}

base::Status Broker::fetch(const std::string& name, base::TimePoint deadline, std::shared_ptr<Segment>& segment,
                           std::unique_ptr<Broker>& out) {
  for (bool somebody_has_it = false;;) {
    base::Fd socket, memory;
    uint64_t size = 0;
    if (auto status = connect_to(name, socket); !status.ok()) return status;
    base::Status status{base::Code::PeerLost, ""};
    if (socket) status = receive(socket.get(), deadline, memory, size);
    somebody_has_it = static_cast<bool>(socket);
    if (status.ok()) {
      status = Segment::adopt(std::move(memory), size, segment);
      if (status.ok()) out.reset(new Broker(name, segment, {}, std::move(socket)));
      return status;
    }
    if (status.code() == base::Code::Denied) return status;
    // Nobody has it yet, or whoever had it has just ended and another one takes it over.
    if (base::Clock::now() >= deadline) {
      const auto whose = "a model called \"" + name + "\"";
      return {base::Code::Timeout, somebody_has_it ? "[shared] whoever offers " + whose + " did not answer in time"
                                                   : "[shared] no process of this machine offers " + whose};
    }
    std::this_thread::sleep_for(pause_between_tries);
  }
}

std::unique_ptr<Broker> Broker::stand_by(const std::string& name, std::shared_ptr<Segment> segment) {
  return std::unique_ptr<Broker>(new Broker(name, std::move(segment), {}, {}));
}

Broker::Broker(std::string name, std::shared_ptr<Segment> segment, base::Fd listening, base::Fd waiting)
    : process_(::getpid()),
      name_(std::move(name)),
      segment_(std::move(segment)),
      listening_(std::move(listening)),
      waiting_(std::move(waiting)),
      stop_(make_eventfd()),
      thread_([this] { work(); }) {
  ::pthread_setname_np(thread_.native_handle(), base::broker_thread);
}

Broker::~Broker() {
  if (!is_ours()) {
    // What would stop the thread is shared with the parent, whose thread it would stop. And the handle of a thread that
    // is not there must not be touched: the C library may have given its memory to a new one, which would be detached
    // instead. So the handle is overwritten, not ended.
    std::construct_at(&thread_);
    return;
  }
  const uint64_t one = 1;
  (void)!::write(stop_.get(), &one, sizeof one);
  thread_.join();
}

/// False once it is to stop.
bool Broker::wait_for_news(int descriptor) const {
  pollfd watched[] = {{.fd = stop_.get(), .events = POLLIN, .revents = 0},
                      {.fd = descriptor, .events = POLLIN, .revents = 0}};
  while (::poll(watched, 2, -1) < 0 && errno == EINTR) {
  }
  return watched[0].revents == 0;
}

void Broker::work() {
  while (true) {
    if (listening_) return serve();
    if (waiting_ && !wait_for_news(waiting_.get())) return;
    look_for_the_name();
    if (listening_) continue;
    base::Fd memory;
    uint64_t size = 0;
    // Whoever has the name may be stopped, and our end must not wait.
    if (waiting_ && !wait_for_news(waiting_.get())) return;
    if (waiting_ && receive(waiting_.get(), base::never, memory, size).ok()) {
      if (!is_same_memory(memory.get(), segment_->fd())) return lose_the_name();
      continue;
    }
    drop(waiting_);
    if (!pause()) return;
  }
}

/// Whoever had it has ended: it becomes ours, or another one's, to whom we connect.
void Broker::look_for_the_name() {
  const NoFork no_fork;
  waiting_.reset();
  if (!bind_to(name_, listening_).ok() || listening_) return;  // There may be descriptors left later.
  (void)connect_to(name_, waiting_);
}

/// Somebody has created another model of that name. To take it back would lose it for those who found that one.
void Broker::lose_the_name() {
  drop(waiting_);
  const base::Log log("process " + std::to_string(process_), base::log_level(base::Environment::process()));
  log.error("[shared] another model was created as \"", name_,
            "\" before one of us could take the name over from the process that had it, which has ended: the model "
            "that this process has goes on for those who have it, but nobody finds it by its name any more");
  lost_.store(true);
}

void Broker::drop(base::Fd& one) {
  const NoFork no_fork;
  one.reset();
}

/// Between two tries. False once it is to stop.
bool Broker::pause() const {
  pollfd stopped{.fd = stop_.get(), .events = POLLIN, .revents = 0};
  return ::poll(&stopped, 1, static_cast<int>(std::chrono::milliseconds(pause_between_tries).count())) <= 0;
}

/// Until it is to stop. Those who were served are kept: that their connection ends tells them that we did.
void Broker::serve() {
  while (wait_for_news(listening_.get())) {
    const int socket = welcome();
    if (socket >= 0) {
      hand_out(socket);
    } else {
      (void)pause();  // Out of descriptors, most likely: who asks stays there, and we would only spin.
    }
  }
}

/// The connection of one that asks, from now on one of those who are served; -1 if there is none.
int Broker::welcome() {
  const NoFork no_fork;
  std::erase_if(served_, [](const base::Fd& one) {
    pollfd hung_up{.fd = one.get(), .events = 0, .revents = 0};
    return ::poll(&hung_up, 1, 0) > 0;
  });
  base::Fd socket(::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const int number = socket.get();
  if (!socket || !is_same_user(number)) return -1;
  served_.push_back(std::move(socket));
  return number;
}

void Broker::hand_out(int socket) const {
  const uint64_t size = segment_->size();
  std::string bytes(sizeof size, '\0');
  std::memcpy(bytes.data(), &size, sizeof size);
  (void)shm::send_with_fds(socket, bytes, {segment_->fd()}, base::Clock::now() + patience);
}

}  // namespace farad::shared
