#include "acer/environments/pipe.h"

#include <farad/error.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>

extern char** environ;

namespace farad::acer {
namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;
constexpr auto reply_patience = std::chrono::seconds(10);
constexpr size_t longest_line = 16 << 20;

/// An action as the program hears of it.
Json as_told(const Action& action, const Spec& spec) {
  if (spec.amounts == 0) return action.choice;
  auto amounts = Json::array();
  for (const double amount : action.amounts)
    amounts.push_back(std::clamp(amount, -spec.amount_limit, spec.amount_limit));
  return amounts;
}

}  // namespace

/// The program and both ends of the conversation: a socket, because writing to one whose other end is gone can fail
/// without a signal.
class PipeEnvironment::Program {
 public:
  explicit Program(std::string command) : command_(std::move(command)) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) fail(std::strerror(errno));
    socket_ = ends[0];
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    std::string shell = "sh", option = "-c";
    char* const arguments[] = {shell.data(), option.data(), command_.data(), nullptr};
    posix_spawnattr_t attributes;
    ::posix_spawnattr_init(&attributes);
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);  // Ctrl-C is for us: we end it when we are done.
    const int error = ::posix_spawnp(&process_, "sh", &actions, &attributes, arguments, environ);
    ::posix_spawnattr_destroy(&attributes);
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
    if (error != 0) {
      process_ = -1;
      ::close(socket_);
      fail(std::string("sh cannot be run: ") + std::strerror(error));
    }
  }
  ~Program() {
    ::close(socket_);
    if (process_ < 0) return;
    // Without its input it has nothing left to do; whoever waits for it does not want to know what it does instead.
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  Program(const Program&) = delete;

  Json ask(const Json& request) {
    const auto line = request.dump() + "\n";
    for (size_t sent = 0; sent < line.size();) {
      const auto count = ::send(socket_, line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) fail("it is gone (" + std::string(std::strerror(errno)) + ")");
      sent += static_cast<size_t>(count);
    }
    return hear();
  }

  Json hear() {
    const auto deadline = Clock::now() + reply_patience;
    size_t end;
    while ((end = unread_.find('\n')) == std::string::npos) {
      if (unread_.size() > longest_line) fail("a line of more than 16 MiB");
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
      pollfd ready{socket_, POLLIN, 0};
      const int found = ::poll(&ready, 1, static_cast<int>(std::max<int64_t>(left, 0)));
      if (found < 0 && errno == EINTR) continue;
      if (found == 0) fail("no reply in 10 s");
      char text[4096];
      const auto count = ::recv(socket_, text, sizeof text, 0);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) fail("it has ended");
      unread_.append(text, static_cast<size_t>(count));
    }
    const auto line = unread_.substr(0, end);
    unread_.erase(0, end + 1);
    auto reply = Json::parse(line, nullptr, false);
    if (!reply.is_object()) fail("it says \"" + line.substr(0, 80) + "\", which is not an object in JSON");
    return reply;
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw Error("[acer] environment \"" + command_ + "\": " + what);
  }

  /// A field of a reply.
  template <class T>
  T field(const Json& reply, const char* name) const {
    try {
      return reply.at(name).get<T>();
    } catch (const Json::exception& error) {
      fail("\"" + std::string(name) + "\" in " + reply.dump().substr(0, 80) + ": " + error.what());
    }
  }

  Spec describe() {
    const auto hello = hear();
    Spec spec{.name = field<std::string>(hello, "name"), .observation_size = field<int64_t>(hello, "observation")};
    if (hello.contains("amounts")) {
      if (hello.contains("actions")) fail("its actions are to choose from (\"actions\") or amounts, not both");
      spec.amounts = field<int64_t>(hello, "amounts");
      spec.amount_limit = field<double>(hello, "limit");
      if (!(spec.amount_limit > 0)) fail("amounts are cut to a \"limit\" of more than 0");
    } else {
      spec.actions = field<int64_t>(hello, "actions");
    }
    if (spec.observation_size < 1 || spec.actions + spec.amounts < 1) fail("it has no observations or no actions");
    if (hello.contains("reward_scale")) spec.reward_scale = field<double>(hello, "reward_scale");
    if (!(spec.reward_scale > 0)) fail("a \"reward_scale\" is more than 0");
    if (hello.contains("time_limit")) spec.time_limit = field<int64_t>(hello, "time_limit");
    if (hello.contains("solved")) spec.solved = field<double>(hello, "solved");
    return spec;
  }

 private:
  std::string command_;
  pid_t process_ = -1;
  int socket_ = -1;
  std::string unread_;
};

PipeEnvironment::PipeEnvironment(const std::string& command)
    : PipeEnvironment(command, std::make_unique<Program>(command)) {}

PipeEnvironment::PipeEnvironment(const std::string&, std::unique_ptr<Program> program)
    : Environment(program->describe()),
      program_(std::move(program)),
      seen_(static_cast<size_t>(spec().observation_size)) {}

PipeEnvironment::~PipeEnvironment() = default;

void PipeEnvironment::begin(Random& random) {
  // 53 bits, so that it is the same number in languages where all numbers are doubles.
  const auto reply = program_->ask({{"reset", random.next() >> 11}});
  seen_ = program_->field<std::vector<float>>(reply, "observation");
  if (static_cast<int64_t>(seen_.size()) != spec().observation_size)
    program_->fail("an observation of " + std::to_string(seen_.size()) + " numbers");
}

Outcome PipeEnvironment::advance(const Action& action, Random&) {
  const auto reply = program_->ask({{"step", as_told(action, spec())}});
  seen_ = program_->field<std::vector<float>>(reply, "observation");
  if (static_cast<int64_t>(seen_.size()) != spec().observation_size)
    program_->fail("an observation of " + std::to_string(seen_.size()) + " numbers");
  return {.reward = program_->field<double>(reply, "reward"),
          .terminated = reply.contains("terminated") && program_->field<bool>(reply, "terminated"),
          .truncated = reply.contains("truncated") && program_->field<bool>(reply, "truncated")};
}

void PipeEnvironment::observe(std::span<float> observation) const {
  std::copy(seen_.begin(), seen_.end(), observation.begin());
}

}  // namespace farad::acer
