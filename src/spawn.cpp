#include <farad/spawn.h>

#include <dirent.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <exception>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "net/machine.h"
#include "rpc/incall.h"
#include "worker_core.h"

namespace farad {
namespace {

/// Joins, runs and closes; what `fn` throws goes before what close() throws.
void run_member(const std::function<void(Worker&)>& fn, WorkerOptions options) {
  Worker worker = Worker::join(std::move(options));
  {
    detail::WorkerCore::Scope scope(detail::WorkerCore::of(worker));
    fn(worker);
  }
  worker.close();
}

int threads_of_this_process() {
  int count = 0;
  if (DIR* tasks = ::opendir("/proc/self/task")) {
    while (const dirent* entry = ::readdir(tasks)) count += entry->d_name[0] != '.';
    ::closedir(tasks);
  }
  return count;
}

/// Those that libraries start when they are loaded, before main(): OpenBLAS does, and knows how to survive a fork.
const int threads_at_load = threads_of_this_process();

/// What a child tells of its failure before it ends: type and text, each ended by a zero.
void tell(int pipe, const rpc::Failure& failure) {
  std::string bytes = failure.type;
  bytes += '\0';
  bytes += failure.text;
  bytes += '\0';
  [[maybe_unused]] const ssize_t n = ::write(pipe, bytes.data(), bytes.size());
}

struct Child {
  pid_t pid;
  int pipe;
};

std::exception_ptr failure_of(int rank, const Child& child, int status) {
  const std::string who = "worker" + std::to_string(rank);
  if (WIFSIGNALED(status)) {
    return std::make_exception_ptr(PeerLost("[spawn] " + who + " was ended by " + ::strsignal(WTERMSIG(status))));
  }
  if (WEXITSTATUS(status) == 0) return nullptr;
  std::string told;
  char bytes[4096];
  for (ssize_t n; (n = ::read(child.pipe, bytes, sizeof(bytes))) > 0;) told.append(bytes, static_cast<size_t>(n));
  if (const size_t cut = told.find('\0'); cut != told.npos) {
    return std::make_exception_ptr(RemoteError({"spawn", who}, told.substr(0, cut), told.substr(cut + 1).c_str()));
  }
  return std::make_exception_ptr(
      PeerLost("[spawn] " + who + " ended with exit code " + std::to_string(WEXITSTATUS(status))));
}

}  // namespace

void spawn(int n, const std::function<void(Worker&)>& fn, WorkerOptions options) {
  TORCH_CHECK(n > 0, "[spawn] a group needs at least one worker, not ", n);
  if (const int threads = threads_of_this_process() - threads_at_load; threads > 0) {
    throw Error(
        "[spawn] this process has started " + std::to_string(threads) +
        " threads, which a fork would leave behind in the middle of whatever they do: call spawn before libtorch "
        "has run in parallel, a Worker has joined or a thread was started; or use spawn_threads");
  }
  options.size = n;
  if (options.rendezvous.empty()) {
    options.rendezvous =
        "file:///tmp/farad-spawn-" + std::to_string(::getpid()) + "-" + std::to_string(net::new_birth());
  }
  std::vector<Child> children;
  for (int rank = 0; rank < n; ++rank) {
    int ends[2];
    TORCH_CHECK(::pipe(ends) == 0, "[spawn] pipe: ", std::strerror(errno));
    const pid_t pid = ::fork();
    TORCH_CHECK(pid >= 0, "[spawn] fork: ", std::strerror(errno));
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // Nobody is left behind if we are killed.
      options.rank = rank;
      try {
        run_member(fn, options);
      } catch (...) {
        tell(ends[1], rpc::describe(std::current_exception()));
        ::_exit(1);
      }
      ::_exit(0);
    }
    ::close(ends[1]);
    children.push_back({pid, ends[0]});
  }

  std::exception_ptr first;
  for (size_t left = children.size(); left > 0; --left) {
    int status = 0;
    pid_t pid = -1;
    size_t rank = 0;
    // Only our own children: the caller may have others.
    while (pid <= 0) {
      for (rank = 0; rank < children.size() && pid <= 0; ++rank) {
        if (children[rank].pid > 0) pid = ::waitpid(children[rank].pid, &status, left == 1 ? 0 : WNOHANG);
        if (pid > 0) break;
      }
      if (pid <= 0) ::usleep(1000);
    }
    children[rank].pid = -1;
    if (auto failure = failure_of(static_cast<int>(rank), children[rank], status); failure && !first) {
      first = failure;
      for (const auto& child : children) {
        if (child.pid > 0) ::kill(child.pid, SIGKILL);
      }
    }
    ::close(children[rank].pipe);
  }
  if (first) std::rethrow_exception(first);
}

void spawn_threads(int n, const std::function<void(Worker&)>& fn, WorkerOptions options) {
  TORCH_CHECK(n > 0, "[spawn] a group needs at least one worker, not ", n);
  options.size = n;
  if (options.rendezvous.empty()) options.rendezvous = "local://spawn-" + std::to_string(net::new_birth());
  base::Mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < n; ++rank) {
    threads.emplace_back([&, rank] {
      auto mine = options;
      mine.rank = rank;
      try {
        run_member(fn, std::move(mine));
      } catch (...) {
        base::Lock lock(mutex);
        if (!first) first = std::current_exception();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace farad
