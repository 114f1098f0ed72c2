// The main() of every test program: GoogleTest's, with a deadline. A test that hangs past it shows where each thread
// of this process and of its children stands, and the program aborts. ctest alone would only kill it.

#include <dirent.h>
#include <execinfo.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string_view>

namespace {

// Everything from here to run_with_deadline() runs in signal handlers while other threads may hold any lock, so it
// allocates nothing, and waits for nobody without a bound.

std::atomic<const char*> running_suite{""};
std::atomic<const char*> running_case{""};
std::atomic<pid_t> thread_shown{0};

void print(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(STDERR_FILENO, text.data(), text.size());
    if (n <= 0) return;
    text.remove_prefix(static_cast<size_t>(n));
  }
}

void print(pid_t id) {
  char digits[16];
  print(std::string_view(digits, std::to_chars(digits, digits + sizeof digits, id).ptr - digits));
}

int show_stack_signal() { return SIGRTMAX - 1; }

void show_own_stack(int) {
  const int saved_errno = errno;
  void* frames[128];
  backtrace_symbols_fd(frames, backtrace(frames, 128), STDERR_FILENO);
  thread_shown.store(gettid(), std::memory_order_release);
  errno = saved_errno;
}

/// True if `done` became true within two seconds.
template <class Condition>
bool wait_briefly(Condition done) {
  constexpr timespec tick{0, 10'000'000};
  for (int i = 0; i < 200 && !done(); ++i) nanosleep(&tick, nullptr);
  return done();
}

/// Calls visit(id) for each thread of this process. readdir() allocates, so the system call does its work.
template <class Visit>
void for_each_thread(Visit visit) {
  const int directory = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  alignas(dirent64) char buffer[4096];
  for (long size; (size = syscall(SYS_getdents64, directory, buffer, sizeof buffer)) > 0;) {
    for (long at = 0; at < size;) {
      const auto* entry = reinterpret_cast<const dirent64*>(buffer + at);
      const std::string_view name = entry->d_name;
      pid_t id = 0;
      if (std::from_chars(name.data(), name.data() + name.size(), id).ec == std::errc()) visit(id);
      at += entry->d_reclen;
    }
  }
  close(directory);
}

/// Calls visit(pid) for each child that `thread` forked.
template <class Visit>
void for_each_child_of(pid_t thread, Visit visit) {
  char path[64] = "/proc/self/task/";
  char* end = std::to_chars(path + strlen(path), path + sizeof path, thread).ptr;
  memcpy(end, "/children", sizeof "/children");
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  char list[4096];
  const ssize_t size = read(file, list, sizeof list);
  close(file);
  for (const char *at = list, *last = list + (size > 0 ? size : 0); at < last;) {
    pid_t pid = 0;
    const auto [next, error] = std::from_chars(at, last, pid);
    if (error != std::errc()) break;
    visit(pid);
    at = next + 1;
  }
}

void show_stack_of(pid_t thread) {
  print("\n--- thread ");
  print(thread);
  print("\n");
  if (thread == gettid()) return show_own_stack(0);
  thread_shown.store(0);
  syscall(SYS_tgkill, getpid(), thread, show_stack_signal());
  if (!wait_briefly([&] { return thread_shown.load(std::memory_order_acquire) == thread; }))
    print("  (it blocks all signals, or does not come back from the kernel)\n");
}

void give_up(int) {
  signal(SIGALRM, SIG_IGN);
  print("\n=== deadline passed in process ");
  print(getpid());
  print(", test ");
  print(running_suite.load());
  print(".");
  print(running_case.load());
  print("; every thread (names by c++filt):\n");
  for_each_thread(show_stack_of);
  // Children forked by a test have this very handler. Others die of the signal, which is as well.
  for_each_thread([](pid_t thread) {
    for_each_child_of(thread, [](pid_t child) {
      kill(child, SIGALRM);
      siginfo_t info{};
      wait_briefly(
          [&] { return waitid(P_PID, child, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == child; });
      kill(child, SIGKILL);  // for one that is stopped, or ignores the first
    });
  });
  signal(SIGABRT, SIG_DFL);
  abort();
}

/// Keeps the name of the running case where a signal handler can read it.
class NameKeeper : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo& info) override {
    running_suite = info.test_suite_name();
    running_case = info.name();
  }
};

void set_deadline() {
  const char* seconds = std::getenv("FARAD_TEST_DEADLINE");  // set by ctest; none by hand, for debuggers
  if (!seconds) return;
  void* frame = nullptr;
  backtrace(&frame, 1);  // The first call loads a library, which a signal handler must not do.
  struct sigaction action{};
  action.sa_flags = SA_RESTART;
  action.sa_handler = show_own_stack;
  sigaction(show_stack_signal(), &action, nullptr);
  action.sa_handler = give_up;
  sigaction(SIGALRM, &action, nullptr);
  // A timer of the kernel and not a thread: programs that fork must have only the threads they started.
  alarm(static_cast<unsigned>(std::strtoul(seconds, nullptr, 10)));
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  testing::UnitTest::GetInstance()->listeners().Append(new NameKeeper);
  set_deadline();
  return RUN_ALL_TESTS();
}
