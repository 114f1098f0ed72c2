// One of two programs that have no code in common: it makes functions known, and serves them.
// program_that_has MEETING TRANSPORT

#include <ATen/ops/full.h>
#include <farad/worker.h>

#include <exception>
#include <iostream>

namespace shapes {

double area(double width, double height) { return width * height; }
at::Tensor grid(int64_t n, double value) { return at::full({n, n}, value); }

}  // namespace shapes
FARAD_REMOTE(shapes::area)
FARAD_REMOTE(shapes::grid)

int main(int, char** argv) {
  try {
    farad::WorkerOptions options;
    options.rank = 1;
    options.size = 2;
    options.rendezvous = argv[1];
    options.transport = argv[2];
    farad::Worker::join(options).close();
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
