// Calls that overlap: rpc_async gives a Future, then() goes on with its value, when_all waits for many.
// farad run -n 3 -- 04_futures

#include <farad/farad.h>

#include <iostream>

int64_t square(int64_t x) { return x * x; }

/// Returns a Future: the caller gets its value, and no thread waits here meanwhile.
farad::Future<int64_t> square_elsewhere(int64_t x) { return farad::Worker::current().rpc_async<square>("worker2", x); }

int main() {
  auto worker = farad::Worker::join();
  if (worker.rank() == 0) {
    std::vector<farad::Future<int64_t>> replies;
    for (int64_t i = 1; i <= 4; ++i) replies.push_back(worker.rpc_async<square>(i % 3, i));
    const auto sum = farad::when_all(replies).then([](const std::vector<int64_t>& squares) {
      int64_t total = 0;
      for (int64_t s : squares) total += s;
      return total;
    });
    std::cout << "1 + 4 + 9 + 16 = " << sum.wait() << '\n';

    // A continuation may call again; the result is a future of what that call gives.
    const auto chained = worker.rpc_async<square>("worker1", 3).then([](int64_t nine) {
      return farad::Worker::current().rpc_async<square_elsewhere>("worker1", nine);
    });
    std::cout << "3 to the fourth: " << chained.wait() << '\n';
  }
  worker.close();
}
