#include "process/machines/machines.h"

#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "process/command/command.h"

namespace farad::test {
namespace {

/// What went wrong, or nothing.
std::string shell(const std::string& script) {
  Command command({"sh", "-ec", script});
  return command.finish() == 0 ? "" : command.err().empty() ? "it failed without a word" : command.err();
}

std::string name_of(int machine) { return "farad-test-" + std::to_string(::getpid()) + "-" + std::to_string(machine); }

/// Starts somebody who does `last_will` when the other end of the returned socket is closed, for whatever reason, and
/// who says when that is done. It has a session and a parent of its own, so that it outlives what ends the test.
int start_undertaker(const std::string& last_will) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return -1;
  // Standard output is read from too: the shell takes the input of what runs in the background away.
  std::string script = "setsid sh -c 'echo; read end <&1; " + last_will + "; echo' 2>/dev/null &";
  std::string shell = "sh", option = "-c";
  char* const arguments[] = {shell.data(), option.data(), script.data(), nullptr};
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  pid_t pid = -1;
  const int error = ::posix_spawnp(&pid, "sh", &actions, nullptr, arguments, ::environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  if (error == 0) ::waitpid(pid, nullptr, 0);
  char ready;
  if (error == 0 && ::read(ends[0], &ready, 1) == 1) return ends[0];
  ::close(ends[0]);
  return -1;
}

}  // namespace

Machines::Machines() : first_(name_of(1)), second_(name_of(2)) {
  if (::geteuid() != 0) {
    trouble_ = "network namespaces need root";
    return;
  }
  if (!shell("command -v ip").empty()) {
    trouble_ = "the command `ip` is missing: apt install iproute2";
    return;
  }
  undertaker_ = start_undertaker("ip netns del " + first_ + "; ip netns del " + second_);
  if (undertaker_ < 0) {
    trouble_ = "nobody would remove the namespaces again";
    return;
  }
  const std::string why =
      shell("ip netns add " + first_ + "; ip netns add " + second_ + "; for m in " + first_ + " " + second_ +
            "; do ip -n $m link add private type veth peer name nobody; ip -n $m addr add " + private_address +
            "/24 dev private; ip -n $m link set private up; ip -n $m link set nobody up; done; ip -n " + first_ +
            " link add cable type veth peer name cable netns " + second_ + "; ip -n " + first_ + " addr add " +
            first_address + "/24 dev cable" + "; ip -n " + second_ + " addr add " + second_address + "/24 dev cable" +
            "; for m in " + first_ + " " + second_ + "; do ip -n $m link set lo up; ip -n $m link set cable up; done");
  if (!why.empty()) trouble_ = "this system does not let us make network namespaces: " + why;
}

Machines::~Machines() {
  if (undertaker_ < 0) return;
  ::shutdown(undertaker_, SHUT_WR);
  char done;
  [[maybe_unused]] const auto count = ::read(undertaker_, &done, 1);  // Until they are gone.
  ::close(undertaker_);
}

std::vector<std::string> Machines::inside(const std::string& name, const std::vector<std::string>& program) {
  std::vector<std::string> line{"ip", "netns", "exec", name};
  line.insert(line.end(), program.begin(), program.end());
  return line;
}

}  // namespace farad::test
