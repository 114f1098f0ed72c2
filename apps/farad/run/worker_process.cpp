#include "run/worker_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>

namespace farad::run {
namespace {

struct Pipe {
  base::Fd read;
  base::Fd write;
};

bool make_pipe(Pipe& pipe) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return false;
  pipe = {base::Fd(ends[0]), base::Fd(ends[1])};
  return true;
}

std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (const auto& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

/// Between fork and exec; only returns if it fails, with errno.
void become(const StartOptions& options, char* const* arguments, char* const* environment, pid_t parent, int out,
            int err) {
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return;
  if (::getppid() != parent) ::_exit(1);  // It died before we asked to be told.
  if (!options.keeps_stdin) {
    const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null < 0 || ::dup2(null, STDIN_FILENO) < 0) return;
  }
  if (::dup2(out, STDOUT_FILENO) < 0 || ::dup2(err, STDERR_FILENO) < 0) return;
  ::signal(SIGPIPE, SIG_DFL);
  ::sigprocmask(SIG_SETMASK, &options.signal_mask, nullptr);
  ::execvpe(arguments[0], arguments, environment);
}

}  // namespace

base::Status start(const StartOptions& options, WorkerProcess& worker, int& exit_code) {
  const auto failed = [&exit_code](int code, const std::string& what, int error) {
    exit_code = code;
    return base::Status(base::Code::Invalid, "[run] " + what + ": " + std::strerror(error));
  };
  Pipe out;
  Pipe err;
  Pipe exec_error;  // Closed by a successful exec; else it brings errno.
  if (!make_pipe(out) || !make_pipe(err) || !make_pipe(exec_error)) {
    return failed(126, "no pipe for a worker's output (see ulimit -n)", errno);
  }
  const auto arguments = pointers_to(options.program);
  const auto environment = pointers_to(options.environment);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return failed(126, "cannot fork (see ulimit -u)", errno);
  if (pid == 0) {
    become(options, arguments.data(), environment.data(), parent, out.write.get(), err.write.get());
    const int error = errno;
    [[maybe_unused]] const auto written = ::write(exec_error.write.get(), &error, sizeof error);
    ::_exit(126);
  }

  exec_error.write.reset();
  int error = 0;
  ssize_t count = 0;
  do {
    count = ::read(exec_error.read.get(), &error, sizeof error);
  } while (count < 0 && errno == EINTR);
  if (count > 0) {
    ::waitpid(pid, nullptr, 0);
    return failed(error == ENOENT ? 127 : 126, "cannot run \"" + options.program.front() + '"', error);
  }
  ::fcntl(out.read.get(), F_SETFL, O_NONBLOCK);
  ::fcntl(err.read.get(), F_SETFL, O_NONBLOCK);
  worker = {pid, std::move(out.read), std::move(err.read)};
  return {};
}

}  // namespace farad::run
