// What goes wrong elsewhere is told here, by name.
// farad run -n 3 -- 03_errors

#include <farad/farad.h>

#include <iostream>

int64_t divide(int64_t a, int64_t b) {
  if (b == 0) throw std::domain_error("division by zero");
  return a / b;
}

int64_t ask_worker2(int64_t a, int64_t b) { return farad::Worker::current().rpc_sync<divide>("worker2", a, b); }

/// Answers long after its caller has given up; can see that.
void slow() {
  for (int i = 0; i < 1000 && !farad::cancelled(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

int main() {
  using namespace std::chrono_literals;
  auto worker = farad::Worker::join();
  if (worker.rank() == 0) {
    try {
      worker.rpc_sync<ask_worker2>("worker1", 1, 0);
    } catch (const farad::RemoteError& error) {
      std::cout << error.what_without_backtrace() << '\n';
    }
    try {
      worker.with({.timeout = 50ms}).rpc_sync<slow>("worker1");
    } catch (const farad::Timeout& error) {
      std::cout << error.what_without_backtrace() << '\n';
    }
  }
  worker.close();
}
