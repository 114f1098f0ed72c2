// Every name of the public API as programs outside of the repository write it: this is compiled and never run. What is
// fixed is the way it is called and what comes of it, so that is what is checked.

#include <farad/farad.h>

#include <array>
#include <chrono>
#include <concepts>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using farad::Future;
using farad::RRef;
using torch::Tensor;

/// Whether an expression is of that very type.
template <class T, class Given>
void gives(Given&&) {
  static_assert(std::same_as<std::remove_cvref_t<Given>, T>);
}

// --- What can be called ---

enum class Colour : uint8_t { Red };
struct Transition {
  Tensor state;
  int64_t action = 0;
  std::optional<double> reward;
  RRef<Tensor> weights;
  FARAD_FIELDS(state, action, reward, weights)
};

Tensor my_add(Tensor a, Tensor b) { return a + b; }
Tensor random_tensor() { return torch::rand({3, 3}, torch::requires_grad()); }
std::string by_value(std::string a, const std::string& b, std::string&& c) { return a + b + c; }
int64_t widened(int64_t a, double b) noexcept { return a + static_cast<int64_t>(b); }
Future<int64_t> later(int64_t x) {
  farad::Promise<int64_t> promise;
  promise.set_value(x);
  return promise.future();
}
void nothing() {}
Transition structs(Transition transition) { return transition; }
RRef<Tensor> references(RRef<Tensor> tensor, std::vector<RRef<Tensor>>) { return tensor; }
template <class From, class To>
To converted(From x) {
  return static_cast<To>(x);
}
FARAD_REMOTE(my_add)
FARAD_REMOTE(converted<double, int64_t>)

struct Statics {
  static bool is_even(int64_t x) { return x % 2 == 0; }
};

/// Takes and gives everything that travels.
using Everything =
    std::tuple<Tensor, bool, int8_t, uint64_t, float, double, Colour, std::string, std::vector<Tensor>,
               std::array<int64_t, 2>, std::map<std::string, Tensor>, std::unordered_map<int64_t, std::string>,
               std::optional<Tensor>, std::pair<int64_t, Tensor>, torch::Scalar, RRef<Tensor>, Transition>;
Everything everything(Everything all) { return all; }

struct NetImpl : torch::nn::Module {
  NetImpl() : linear(register_module("linear", torch::nn::Linear(2, 2))) {}
  Tensor forward(const Tensor& x) { return linear(x); }
  Tensor scaled(Tensor x, double by) const { return x * by; }
  int64_t lvalue() & { return 1; }
  int64_t constant() const& { return 2; }
  int64_t quiet() noexcept { return 3; }
  int64_t quiet_constant() const noexcept { return 4; }
  int64_t quiet_lvalue() & noexcept { return 5; }
  int64_t quiet_constant_lvalue() const& noexcept { return 6; }
  Future<int64_t> later(int64_t x) { return ::later(x); }
  torch::nn::Linear linear;
};
TORCH_MODULE(Net);
Net make_net() { return Net(); }
int64_t count(Net& net, int64_t more) { return static_cast<int64_t>(net->parameters().size()) + more; }

struct Simulator {  // neither copied nor moved
  Simulator() = default;
  Simulator(const Simulator&) = delete;
  int64_t step(int64_t n) { return n; }
};
std::unique_ptr<Simulator> make_simulator() { return std::make_unique<Simulator>(); }

// --- Worker ---

farad::WorkerOptions options() {
  farad::WorkerOptions options = farad::WorkerOptions::from_environment();
  static_assert(farad::WorkerOptions{}.rank == -1 && farad::WorkerOptions{}.size == -1);
  return {.name = "trainer",
          .rank = 0,
          .size = 2,
          .rendezvous = "tcp://localhost:29500",
          .transport = "",
          .rpc_timeout = 60'000ms,
          .join_timeout = 120s,
          .lost_after = 3s,
          .threads = options.threads};
}

template <class Calls>
void calls(const Calls& with) {
  const Tensor x = torch::ones({2});
  gives<Tensor>(with.template rpc_sync<my_add>("worker1", x, x));
  gives<Tensor>(with.template rpc_sync<&my_add>(std::string("worker1"), x, x));
  gives<Tensor>(with.template rpc_sync<my_add>(std::string_view("worker1"), x, x));
  gives<bool>(with.template rpc_sync<Statics::is_even>(1, 2));
  gives<bool>(with.template rpc_sync<&Statics::is_even>(size_t{1}, 2));
  gives<int64_t>(with.template rpc_sync<[](int64_t n) { return n * n; }>(farad::WorkerInfo{"worker1", 1}, 2));
  gives<std::string>(with.template rpc_sync<by_value>("worker1", "a", "b", "c"));
  gives<int64_t>(with.template rpc_sync<widened>("worker1", 12, 3));
  gives<int64_t>(with.template rpc_sync<later>("worker1", 12));
  gives<Future<int64_t>>(with.template rpc_async<later>("worker1", 12));
  gives<Future<Tensor>>(with.template rpc_async<my_add>("worker1", x, x));
  gives<Future<void>>(with.template rpc_async<nothing>("worker1"));
  gives<RRef<Tensor>>(with.template remote<my_add>("worker1", x, x));
  gives<RRef<int64_t>>(with.template remote<later>("worker1", 1));
  gives<RRef<void>>(with.template remote<nothing>("worker1"));
  gives<RRef<Net>>(with.template remote<make_net>("worker1"));
  gives<Transition>(with.template rpc_sync<structs>("worker1", Transition{x, 1, {}, {}}));
  gives<Everything>(with.template rpc_sync<everything>("worker1", Everything()));
  gives<RRef<Tensor>>(with.template rpc_sync<references>("worker1", RRef<Tensor>(), std::vector<RRef<Tensor>>()));
  with.template rpc_sync<nothing>("worker1");

  gives<torch::IValue>(with.rpc_sync("worker1", "aten::add", {x, x}));
  gives<Future<torch::IValue>>(with.rpc_async("worker1", "aten::add.Tensor", {x, 1}));
  gives<RRef<Tensor>>(with.remote("worker1", "aten::add", std::vector<torch::IValue>{x, 1}));
}

void workers() {
  farad::Worker worker = farad::Worker::join();
  worker = farad::Worker::join(options());
  gives<farad::Worker>(farad::Worker::current());
  gives<farad::WorkerInfo>(worker.self());
  gives<int>(worker.rank());
  gives<int>(worker.size());
  gives<std::vector<farad::WorkerInfo>>(worker.members());
  gives<int>(worker.find("worker1").rank);
  calls(worker);
  calls(worker.with({}));
  gives<farad::Caller>(worker.with({.timeout = 5s}));
  const farad::CallOptions no_limit{.timeout = 0ms};
  gives<Tensor>(worker.with(no_limit).rpc_sync<my_add>("worker1", torch::ones({}), torch::ones({})));
  gives<bool>(farad::cancelled());
  worker.barrier();
  worker.leave();
  worker.close();
  static_assert(std::movable<farad::Worker> && !std::copyable<farad::Worker>);
  static_assert(std::same_as<farad::Result<later>, int64_t>);
}

static_assert(std::derived_from<farad::Error, c10::Error>);
static_assert(std::derived_from<farad::PeerLost, farad::Error> && std::derived_from<farad::Timeout, farad::Error> &&
              std::derived_from<farad::RemoteError, farad::Error> && std::derived_from<farad::Aborted, farad::Error> &&
              std::derived_from<farad::Cancelled, farad::Error> && std::derived_from<farad::Closed, farad::Error>);

// --- Future, RRef ---

void futures(Future<Tensor> future, Future<void> done) {
  const Future<Tensor> copy = future;
  gives<Tensor>(copy.wait());
  gives<bool>(future.wait_for(5ms));
  gives<bool>(future.ready());
  gives<Future<int64_t>>(future.then([](const Tensor& x) { return x.numel(); }));
  gives<Future<int64_t>>(future.then([](Tensor x) { return later(x.numel()); }));
  gives<Future<void>>(done.then([] {}));
  future.cancel();
  done.wait();
  gives<Future<std::vector<Tensor>>>(farad::when_all(std::vector<Future<Tensor>>{future, copy}));
  gives<Future<void>>(farad::when_all(std::vector<Future<void>>{done}));
  farad::Promise<Tensor> promise;
  promise.set_value(torch::ones({}));
  gives<Future<Tensor>>(promise.future());
}

void references_to(farad::Worker& worker, RRef<Tensor> tensor, RRef<Net> net) {
  gives<RRef<Tensor>>(RRef<Tensor>::local(worker, torch::ones({2})));
  gives<RRef<std::unique_ptr<Simulator>>>(RRef<std::unique_ptr<Simulator>>::local(worker, make_simulator()));
  gives<farad::WorkerInfo>(tensor.owner());
  gives<bool>(tensor.is_owner());
  gives<bool>(tensor.confirmed());
  gives<Tensor>(tensor.to_here());
  gives<Tensor>(tensor.to_here(5s));
  static_assert(std::same_as<decltype(tensor.local_value()), Tensor&>);

  const Tensor x = torch::ones({2});
  gives<Tensor>(net.rpc_sync<&NetImpl::forward>(x));
  gives<Tensor>(net.rpc_sync<&NetImpl::scaled>(x, 2));
  gives<int64_t>(net.rpc_sync<&NetImpl::lvalue>() + net.rpc_sync<&NetImpl::constant>());
  gives<int64_t>(net.rpc_sync<&NetImpl::quiet>() + net.rpc_sync<&NetImpl::quiet_constant>());
  gives<int64_t>(net.rpc_sync<&NetImpl::quiet_lvalue>() + net.rpc_sync<&NetImpl::quiet_constant_lvalue>());
  gives<int64_t>(net.rpc_sync<&NetImpl::later>(1));
  gives<int64_t>(net.rpc_sync<count>(1));
  gives<int64_t>(net.rpc_sync<[](Net& it, int64_t n) { return static_cast<int64_t>(it->children().size()) + n; }>(1));
  gives<Future<Tensor>>(net.rpc_async<&NetImpl::forward>(x));
  gives<RRef<Tensor>>(net.remote<&NetImpl::forward>(x));
  gives<std::vector<RRef<Tensor>>>(farad::parameters(net));
  gives<int64_t>(worker.remote<make_simulator>("worker1").rpc_sync<&Simulator::step>(1));
}

// --- Context ---

void contexts(farad::Worker& worker, RRef<Tensor> root) {
  farad::Context context(worker);
  gives<int64_t>(context.id());
  const Tensor leaf = torch::ones({2}, torch::requires_grad());
  const Tensor loss = (leaf * root.to_here()).sum();
  context.backward({loss});
  context.backward({root});
  context.backward(std::vector<Tensor>{loss}, {.grad_tensors = {torch::ones({})},
                                               .inputs = {leaf},
                                               .retain_graph = true,
                                               .create_graph = false,
                                               .mode = farad::Mode::Fast,
                                               .timeout = 5s});
  context.backward(std::vector<RRef<Tensor>>{root}, {.mode = farad::Mode::Smart});
  const farad::Gradients gradients = context.gradients();
  for (const auto& [each, gradient] : gradients) gives<Tensor>(each + gradient);
  gives<size_t>(gradients.size());
  const Tensor found = gradients.find(leaf);
  gives<Tensor>(context.gradient(leaf) + found);
  gives<std::string>(context.dot());
  const farad::ContextScope scope(context);
  gives<int64_t>(farad::current_context_id());
  gives<farad::Gradients>(farad::gradients(worker, context.id()));
  farad::backward(worker, context.id(), {loss});
  farad::backward(worker, context.id(), {loss}, {.retain_graph = true});
  gives<std::vector<Tensor>>(farad::grad(context, {loss}, {leaf}));
  gives<std::vector<Tensor>>(farad::grad(context, {loss}, {leaf}, {.create_graph = true}));
  gives<Tensor>(farad::checkpoint([](Tensor x) { return x * 2; }, leaf));
  gives<Tensor>(farad::checkpoint(my_add, leaf, leaf));
  static_assert(std::movable<farad::Context> && !std::copyable<farad::Context>);
}

// --- DistributedOptimizer ---

void optimizers(farad::Worker& worker, farad::Context& context, const std::vector<RRef<Tensor>>& parameters) {
  farad::DistributedOptimizer<torch::optim::SGD> optimizer(worker, parameters, torch::optim::SGDOptions(0.05));
  farad::DistributedOptimizer<torch::optim::Adam> adam(worker, {parameters[0]}, torch::optim::AdamOptions(0.001));
  farad::DistributedOptimizer<torch::optim::AdamW> adamw(worker, parameters, torch::optim::AdamWOptions(0.001));
  optimizer.step(context);
  optimizer.step({&context, &context});
  gives<double>(optimizer.clip_grad_norm(context, 1));
  optimizer.set_lr(0.01);
  gives<double>(optimizer.lr());
  optimizer.save("directory");
  optimizer.load("directory");
}

// --- Group ---

void groups(farad::Worker& worker, Tensor x) {
  farad::Group all(worker), group(worker, {0, 1});
  gives<int>(group.rank() + group.size());
  gives<Tensor>(group.all_reduce(x));
  for (const auto op : {farad::Op::Sum, farad::Op::Mean, farad::Op::Max, farad::Op::Min, farad::Op::Product}) {
    gives<Tensor>(group.all_reduce(x, op));
  }
  gives<std::vector<Tensor>>(group.all_gather(x));
  gives<Tensor>(group.all_gather_cat(x) + group.all_gather_cat(x, 1));
  gives<Tensor>(group.reduce_scatter({x, x}) + group.reduce_scatter({x, x}, farad::Op::Max));
  gives<std::vector<Tensor>>(group.all_to_all({x, x}));
  gives<Tensor>(group.broadcast(x, 0));
  gives<Tensor>(group.reduce(x, 0) + group.reduce(x, 0, farad::Op::Mean));
  gives<std::vector<Tensor>>(group.gather(x, 0));
  gives<Tensor>(group.scatter({x, x}, 0));
  gives<Tensor>(group.send(x, 1) + group.recv(1));
  gives<Tensor>(group.shift(x, 1));
  group.barrier();
}

// --- Shared memory, processes ---

void shared_models(Net net) {
  auto model = farad::shared::Model::create("name", net);
  auto same = farad::shared::Model::attach("name", net);
  model.snapshot();
  gives<uint64_t>(model.version());
  model.stats();
  model.step();
  for (const auto policy :
       {farad::shared::Policy::Locked, farad::shared::Policy::Hogwild, farad::shared::Policy::Averaged,
        farad::shared::Policy::Managed, farad::shared::Policy::AllReduced}) {
    farad::shared::Model::create("name", net, torch::optim::SGDOptions(0.1), {.policy = policy});
  }
}

void processes() {
  farad::spawn(2, [](farad::Worker& worker) { worker.barrier(); });
  farad::spawn_threads(2, [](farad::Worker& worker) { worker.barrier(); });
}

int main() {}
