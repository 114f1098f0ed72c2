#include "process/command/command.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <stdexcept>

#include "base/environment.h"

namespace farad::test {
namespace {

constexpr int patience_ms = 60'000;
constexpr int life_in_child = 100;

struct Pipe {
  int read = -1;
  int write = -1;
};

Pipe make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  return {ends[0], ends[1]};
}

std::vector<std::string> environment_with(const std::map<std::string, std::string>& changes) {
  std::map<std::string, std::string> values;
  for (char** entry = ::environ; *entry; ++entry) {
    const std::string text(*entry);
    const auto equals = text.find('=');
    values[text.substr(0, equals)] = text.substr(equals + 1);
  }
  for (const auto& row : base::variables()) values.erase(row.name);
  for (const auto& [name, value] : changes) values[name] = value;
  std::vector<std::string> result;
  for (const auto& [name, value] : values) {
    if (!value.empty()) result.push_back(name + '=' + value);
  }
  return result;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (auto& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

/// The master of a new terminal; its slave's name comes back in `slave`.
int open_terminal(std::string& slave) {
  const int master = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  std::array<char, 128> name;
  if (master < 0 || ::grantpt(master) != 0 || ::unlockpt(master) != 0 ||
      ::ptsname_r(master, name.data(), name.size()) != 0) {
    throw std::runtime_error("no terminal");
  }
  slave = name.data();
  return master;
}

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const auto count = ::write(fd, text.data(), text.size());
    if (count <= 0) return;
    text.remove_prefix(static_cast<size_t>(count));
  }
}

}  // namespace

Command::Command(std::vector<std::string> arguments, CommandOptions options) {
  const Pipe life = make_pipe();
  life_fd_ = life.read;
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, life.write, life_in_child);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);

  std::vector<int> childs{life.write};
  std::string slave;
  if (options.terminal) {
    out_fd_ = open_terminal(slave);
    // The first terminal that the leader of a new session opens becomes its controlling one.
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
    for (const int fd : {0, 1, 2}) ::posix_spawn_file_actions_addopen(&actions, fd, slave.c_str(), O_RDWR, 0);
  } else {
    const std::array pipes{make_pipe(), make_pipe(), make_pipe()};
    write_all(pipes[0].write, options.input);  // It is short enough to wait in the pipe for its reader.
    ::close(pipes[0].write);
    out_fd_ = pipes[1].read;
    err_fd_ = pipes[2].read;
    childs.insert(childs.end(), {pipes[0].read, pipes[1].write, pipes[2].write});
    for (const int fd : {0, 1, 2}) {
      ::posix_spawn_file_actions_adddup2(&actions, childs[static_cast<size_t>(fd) + 1], fd);
    }
  }
  auto environment = environment_with(options.environment);
  const int error = ::posix_spawnp(&pid_, arguments.front().c_str(), &actions, &attributes,
                                   pointers_to(arguments).data(), pointers_to(environment).data());
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  for (const int fd : childs) ::close(fd);
  if (error != 0) throw std::runtime_error("cannot start " + arguments.front());
}

Command::~Command() {
  if (!ended_) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  for (const int fd : {out_fd_, err_fd_, life_fd_}) {
    if (fd >= 0) ::close(fd);
  }
}

bool Command::read_some() {
  std::array<pollfd, 2> polled{{{out_fd_, POLLIN, 0}, {err_fd_, POLLIN, 0}}};
  if (out_fd_ < 0 && err_fd_ < 0) return false;
  if (::poll(polled.data(), polled.size(), patience_ms) <= 0) {
    throw std::runtime_error("nothing happens; so far it wrote: " + out_ + err_);
  }
  const auto take = [](pollfd& one, int& fd, std::string& text) {
    if (one.revents == 0) return;
    std::array<char, 65536> bytes;
    const auto count = ::read(fd, bytes.data(), bytes.size());
    if (count > 0) {
      text.append(bytes.data(), static_cast<size_t>(count));
    } else {
      ::close(fd);  // A terminal whose other side is gone gives an error instead of an end.
      fd = -1;
    }
  };
  take(polled[0], out_fd_, out_);
  take(polled[1], err_fd_, err_);
  return true;
}

bool Command::wait_for(std::string_view text, int times) {
  while (count_of(out_, text) < times) {
    if (!read_some()) return false;
  }
  return true;
}

void Command::type(std::string_view text) const { write_all(out_fd_, text); }

void Command::close_out() {
  ::close(out_fd_);
  out_fd_ = -1;
}

int Command::finish() {
  while (read_some()) {
  }
  int status = 0;
  ::waitpid(pid_, &status, 0);
  ended_ = true;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

bool Command::everything_ended() {
  pollfd life{life_fd_, POLLIN, 0};
  return ::poll(&life, 1, patience_ms) == 1 && (life.revents & POLLHUP) != 0;
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const auto end = text.find('\n');
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
  }
  return lines;
}

int count_of(std::string_view text, std::string_view part) {
  int count = 0;
  for (auto at = text.find(part); at != text.npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

}  // namespace farad::test
