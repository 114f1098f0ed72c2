// Calls that take too long: a time of their own, or cancelled by hand. The function is told, and can stop.
// farad run -n 2 -- 09_giving_up

#include <farad/farad.h>

#include <iostream>

std::atomic<int64_t> gave_up{0};

void search() {
  for (int i = 0; i < 1000 && !farad::cancelled(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  if (farad::cancelled()) ++gave_up;
}
int64_t how_many_gave_up() { return gave_up; }

int main() {
  using namespace std::chrono_literals;
  auto worker = farad::Worker::join();
  if (worker.rank() == 0) {
    try {
      worker.with({.timeout = 50ms}).rpc_sync<search>("worker1");
    } catch (const farad::Timeout& error) {
      std::cout << "out of time\n";
    }
    auto reply = worker.rpc_async<search>("worker1");
    reply.cancel();
    try {
      reply.wait();
    } catch (const farad::Cancelled&) {
      std::cout << "cancelled\n";
    }
    while (worker.rpc_sync<how_many_gave_up>("worker1") < 1) std::this_thread::sleep_for(10ms);
    std::cout << "worker1 has noticed\n";
  }
  worker.close();
}
