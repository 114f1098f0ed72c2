// A whole worker, as a user would write it: joins the group that whoever started it describes, asks the next member to
// answer a call, says what it heard, closes.

#include <farad/worker.h>

#include <exception>
#include <iostream>
#include <string>

namespace {

std::string who_is_there(const std::string& caller) {
  return farad::Worker::current().self().name + " heard " + caller;
}

}  // namespace

int main() {
  try {
    auto worker = farad::Worker::join(farad::WorkerOptions::from_environment());
    const int next = (worker.rank() + 1) % worker.size();
    std::cout << worker.rpc_sync<who_is_there>(next, worker.self().name) + '\n' << std::flush;
    worker.close();
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
