// Operators of libtorch, and functions of other programs, are called by name.
// farad run -n 2 -- 05_operators

#include <farad/farad.h>

#include <iostream>

namespace shapes {
double area(double width, double height) { return width * height; }
}  // namespace shapes
FARAD_REMOTE(shapes::area)  // Programs of another build know it by this name.

int main() {
  auto worker = farad::Worker::join();
  if (worker.rank() == 0) {
    const auto x = torch::ones({2, 3});
    // What is not given takes its default: alpha = 1.
    const auto sum = worker.rpc_sync("worker1", "aten::add", {x, x}).toTensor();
    std::cout << "added: " << sum.sum().item<double>() << '\n';
    // The result stays there, to be used by the next one.
    const auto product = worker.remote("worker1", "aten::matmul", {x, x.t()});
    std::cout << "multiplied: " << product.to_here().sum().item<double>() << '\n';
    std::cout << "area: " << worker.rpc_sync("worker1", "shapes::area", {2.0, 3.5}).toDouble() << '\n';
    try {
      worker.rpc_sync("worker1", "aten::from_file", {"/etc/hostname"});
    } catch (const farad::Error& error) {
      std::cout << "refused: files are nobody else's business\n";
    }
  }
  worker.close();
}
