// What a worker has in hand at one instant; a barrier; and one that leaves before the others.
// farad run -n 3 -- 26_looking_inside

#include <farad/farad.h>

#include <iostream>

farad::Promise<void> gate;

farad::Future<void> pass_the_gate() { return gate.future(); }  // Whoever calls waits, and no thread does.
void open_the_gate() { gate.set_value(); }
std::vector<int64_t> make_steps() { return {1, 2, 3}; }

int main() {
  auto worker = farad::Worker::join();
  if (worker.rank() == 0) {
    auto steps = worker.remote<make_steps>("worker1");
    steps.to_here();
    auto passed = worker.rpc_async<pass_the_gate>("worker1");
    std::cout << worker.debug();  // The call that waits, and the reference.
    worker.rpc_sync<open_the_gate>("worker1");
    passed.wait();
  }
  worker.barrier();  // Nobody goes on before all are here.
  if (worker.rank() == 2) {
    worker.leave();  // The others go on, and do not count it as lost.
    return 0;
  }
  if (worker.rank() == 0) {
    std::cout << "without worker2: " << worker.rpc_sync<make_steps>("worker1").size() << " steps\n";
  }
  worker.close();  // Without it, and content.
}
