// A value that lives on another worker, and a handle to it that can be passed around.
// farad run -n 3 -- 02_reference

#include <farad/farad.h>

#include <iostream>

/// Cannot travel, and need not: it lives where it was made.
class Counter {
 public:
  explicit Counter(int64_t start) : value_(start) {}
  int64_t add(int64_t n) { return value_ += n; }

 private:
  int64_t value_;
};

std::unique_ptr<Counter> make_counter(int64_t start) { return std::make_unique<Counter>(start); }

/// Runs on a third worker, which calls the owner by the reference it was lent.
int64_t add_ten(farad::RRef<std::unique_ptr<Counter>> counter) { return counter.rpc_sync<&Counter::add>(10); }

int main() {
  auto worker = farad::Worker::join();
  if (worker.rank() == 0) {
    auto counter = worker.remote<make_counter>("worker1", 5);  // returns at once
    std::cout << "it lives on " << counter.owner().name << '\n';
    std::cout << "after one: " << counter.rpc_sync<&Counter::add>(1) << '\n';
    std::cout << "after ten more, by worker2: " << worker.rpc_sync<add_ten>("worker2", counter) << '\n';
  }
  worker.close();
}
