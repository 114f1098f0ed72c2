// A worker for the tests of `farad run`: behaves as its first argument says. Says "ready" once it does.

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

void say(const std::string& line) {
  const std::string text = line + '\n';
  [[maybe_unused]] const auto written = ::write(STDOUT_FILENO, text.data(), text.size());
}

[[noreturn]] void stay() {
  for (;;) ::pause();
}

void ignore_requests() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::signal(signal, SIG_IGN);
}

/// A child in a session of its own that listens to nobody, as a daemon would be.
void leave_a_daemon() {
  int ready[2];
  if (::pipe(ready) != 0) std::abort();
  if (::fork() == 0) {
    ::setsid();
    ignore_requests();
    ::close(ready[0]);
    ::close(ready[1]);
    stay();
  }
  ::close(ready[1]);
  char none;
  [[maybe_unused]] const auto end = ::read(ready[0], &none, 1);  // Ends once the child is what it is to be.
}

void catch_one_signal() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) sigaddset(&set, signal);
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  say("ready");
  int signal = 0;
  ::sigwait(&set, &signal);
  say(std::string("caught SIG") + ::sigabbrev_np(signal));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view mode = argc > 1 ? argv[1] : "";
  if (mode == "wait") {
    say("ready");
    stay();
  }
  if (mode == "catch") {
    catch_one_signal();
    return 0;
  }
  if (mode == "ignore") {
    ignore_requests();
    say("ready");
    stay();
  }
  if (mode == "leave-daemon") {
    leave_a_daemon();
    return 0;
  }
  if (mode == "daemon-and-wait") {
    leave_a_daemon();
    say("ready");
    stay();
  }
  std::fprintf(stderr, "unknown mode\n");
  return 99;
}
