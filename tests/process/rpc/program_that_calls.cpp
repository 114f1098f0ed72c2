// The other one: it calls by name what it does not have, and tries to call what the other one does not have.
// program_that_calls MEETING TRANSPORT

#include <ATen/core/Tensor.h>
#include <farad/rref.h>
#include <farad/worker.h>

#include <exception>
#include <iostream>

namespace {

double perimeter(double width, double height) { return 2 * (width + height); }

}  // namespace

int main(int, char** argv) {
  try {
    farad::WorkerOptions options;
    options.rank = 0;
    options.size = 2;
    options.rendezvous = argv[1];
    options.transport = argv[2];
    auto worker = farad::Worker::join(options);
    std::cout << "area: " << worker.rpc_sync("worker1", "shapes::area", {2.0, 3.5}).toDouble() << '\n';
    const auto grid = worker.remote("worker1", "shapes::grid", {3, 0.5});
    std::cout << "grid: " << grid.to_here().sum().item<double>() << '\n';
    try {
      worker.rpc_sync<perimeter>("worker1", 2.0, 3.5);
    } catch (const farad::Error& error) {
      std::cout << "perimeter: " << error.what_without_backtrace() << '\n';
    }
    worker.close();
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
