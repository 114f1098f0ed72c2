// What a forward pass leaves, drawn: in one process; over two workers, a call that the loss needs; and one that it does
// not need.
// `24_drawn_graph DIRECTORY` writes it there for Graphviz: `dot -Tsvg DIRECTORY/unused_call.dot`

#include <farad/farad.h>

#include <fstream>
#include <iostream>

torch::Tensor add(torch::Tensor a, torch::Tensor b) { return a + b; }
torch::Tensor multiply(torch::Tensor a, torch::Tensor b) { return a * b; }
torch::Tensor leaf() { return torch::rand({3, 3}, torch::requires_grad()); }

/// No call. The loss needs the sum only.
std::string draw_local_graph(farad::Worker& worker) {
  farad::Context context(worker);
  const auto a = leaf(), b = leaf(), c = leaf();
  const auto d = a + b, e = b * c;
  return context.dot({d.sum()}, {e});
}

/// One call, and something computed of its result.
std::string draw_used_call(farad::Worker& worker) {
  farad::Context context(worker);
  const auto sum = worker.rpc_sync<add>("worker1", leaf(), leaf());
  return context.dot({sum * leaf()});
}

/// Two calls that share an argument. The loss needs the first one only.
std::string draw_unused_call(farad::Worker& worker) {
  farad::Context context(worker);
  const auto shared = leaf();
  const auto sum = worker.rpc_sync<add>("worker1", leaf(), shared);
  const auto unused = worker.rpc_sync<multiply>("worker1", shared, leaf());
  return context.dot({sum.sum()});
}

int main(int argc, char** argv) {
  farad::spawn_threads(2, [&](farad::Worker& worker) {
    if (worker.rank() != 0) return;
    const std::map<std::string, std::string> drawings{{"local_graph", draw_local_graph(worker)},
                                                      {"used_call", draw_used_call(worker)},
                                                      {"unused_call", draw_unused_call(worker)}};
    for (const auto& [name, drawing] : drawings) {
      if (argc > 1) std::ofstream(std::string(argv[1]) + "/" + name + ".dot") << drawing;
      const bool all_reached = drawing.find("grey") == std::string::npos;
      std::cout << name << ": " << (all_reached ? "every node gets a gradient" : "some nodes get none") << '\n';
    }
  });
}
