// Calls that nobody waits for. close() does: it returns when nothing is in flight, also what calls have called.
// farad run -n 3 -- 06_send

#include <farad/farad.h>

#include <atomic>
#include <iostream>

std::atomic<int64_t> heard{0};

void note(int64_t x) { heard += x; }

/// Each tells the next one, and none of them waits.
void pass_on(int64_t left) {
  auto& worker = farad::Worker::current();
  worker.send<note>("worker0", 1);
  if (left > 0) worker.send<pass_on>((worker.rank() + 1) % worker.size(), left - 1);
}

int main() {
  auto worker = farad::Worker::join();
  if (worker.rank() == 2) worker.send<pass_on>("worker0", 99);
  worker.close();
  if (worker.rank() == 0) std::cout << "heard of " << heard << " steps\n";
}
