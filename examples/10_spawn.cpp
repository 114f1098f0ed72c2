// A whole group out of one program: spawn forks a process for each worker, spawn_threads takes threads of this one.
// 10_spawn

#include <farad/farad.h>
#include <unistd.h>

#include <iostream>

int64_t process_here() { return getpid(); }

int main() {
  // Each runs this, joined; when it returns, the worker is closed.
  farad::spawn(3, [](farad::Worker& worker) {
    if (worker.rank() != 0) return;
    std::set<int64_t> processes;
    for (const auto& member : worker.members()) processes.insert(worker.rpc_sync<process_here>(member));
    std::cout << processes.size() << " processes" << std::endl;
  });
  try {
    farad::spawn_threads(2, [](farad::Worker& worker) {
      if (worker.rank() == 1) throw std::runtime_error("what one throws is thrown here");
    });
  } catch (const std::runtime_error& error) {
    std::cout << error.what() << std::endl;
  }
}
