#include "unit/acer/program.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <sstream>
#include <stdexcept>

extern char** environ;

namespace farad::acer {

Program::Program(std::vector<std::string> arguments) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  std::vector<char*> argv;
  for (auto& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const int error = ::posix_spawn(&process_, argv[0], &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  out_ = ends[0];
  if (error != 0) throw std::runtime_error("cannot run " + arguments[0]);
}

Program::~Program() {
  if (process_ > 0) {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  ::close(out_);
}

std::vector<pid_t> Program::children() const {
  const auto process = std::to_string(process_);
  std::ifstream in("/proc/" + process + "/task/" + process + "/children");
  std::vector<pid_t> all;
  for (pid_t child; in >> child;) all.push_back(child);
  return all;
}

bool Program::read_more() {
  char text[4096];
  ssize_t count;
  while ((count = ::read(out_, text, sizeof text)) < 0 && errno == EINTR) {
  }
  if (count <= 0) return false;
  said_.append(text, static_cast<size_t>(count));
  return true;
}

bool Program::hear(const std::string& text, size_t from) {
  while (said_.find(text, from) == std::string::npos) {
    if (!read_more()) return false;
  }
  return true;
}

int Program::wait() {
  while (read_more()) {
  }
  int status = 0;
  ::waitpid(process_, &status, 0);
  process_ = -1;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

Run run(std::vector<std::string> arguments) {
  Program program(std::move(arguments));
  const int code = program.wait();
  return {code, program.said()};
}

Run acer(std::vector<std::string> options) {
  options.insert(options.begin(), FARAD_ACER);
  return run(std::move(options));
}

std::vector<double> column(const std::string& path, const std::string& name) {
  std::ifstream in(path);
  std::string line, cell;
  std::getline(in, line);
  std::istringstream names(line);
  size_t wanted = 0;
  while (std::getline(names, cell, ',') && cell != name) ++wanted;
  if (cell != name) throw std::runtime_error("no column " + name + " in " + path);
  std::vector<double> values;
  while (std::getline(in, line)) {
    std::istringstream cells(line);
    for (size_t i = 0; i <= wanted; ++i) cell.clear(), std::getline(cells, cell, ',');
    if (!cell.empty()) values.push_back(std::stod(cell));
  }
  return values;
}

}  // namespace farad::acer
