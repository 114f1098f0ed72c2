#include "audit/conservation.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <fstream>
#include <random>
#include <string>

#include "audit/board.h"
#include "audit/copy.h"
#include "audit/numbers.h"
#include "audit/processes.h"
#include "audit/worker.h"

namespace farad::audit {
namespace {

constexpr int increases = 100;  // of each worker
constexpr int looks_every = 10;
constexpr int averages_every = 5;  // Of which `increases` is a multiple, so that the last average is of all.
constexpr int encounters = 3;
constexpr double rate = 0.125;  // A power of two: products with small integers are exact.
/// How long the first one within the model waits there at most, should it not be able to tell what the others do.
constexpr auto long_enough = std::chrono::seconds(2);

farad::detail::OptimizerSettings plain_sgd() {
  return {"SGD", {{"lr", 1}, {"momentum", 0}, {"dampening", 0}, {"weight_decay", 0}, {"nesterov", 0}}};
}

at::Tensor integers(const Options& options, int worker, int step, int64_t elements) {
  std::mt19937_64 random(shared::stream_seed(options.seed, static_cast<uint64_t>(worker * increases + step)));
  auto made = at::empty({elements}, at::TensorOptions(c10::ScalarType::Double));
  for (auto* at = made.data_ptr<double>(); at != made.data_ptr<double>() + elements; ++at) {
    *at = static_cast<double>(random() % 17) - 8;
  }
  return made.to(options.dtype);
}

/// Whether that process waits for something that is not the processor.
bool sleeps(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");  // "17 (a name) S ..."
  std::string text;
  std::getline(file, text);
  const auto name_ends = text.rfind(')');
  return name_ends != text.npos && text.compare(name_ends, 3, ") S") == 0;
}

/// So many parts of a power of two that their sum is one: then no bit is lost either where gradients or copies are
/// averaged.
double weight_of(const Options& options, int worker) {
  const unsigned all = std::bit_ceil(static_cast<unsigned>(options.workers));
  const unsigned rest = all - static_cast<unsigned>(options.workers) + 1;
  return static_cast<double>(worker + 1 < options.workers ? 1 : rest) / all;
}

class Member {
 public:
  Member(int number, const Setup& setup)
      : number_(number),
        training_(setup.training),
        options_(setup.options),
        board_(setup.board),
        bound_(training_, options_),
        model_(join(setup.model)) {}

  void update() {
    board_.joined(number_).pid = ::getpid();
    board_.meet(turn_);
    const auto ones = split(at::full({bound_.elements()}, -1, at::TensorOptions(options_.dtype)));
    for (int i = 0; i < increases; ++i) {
      if (number_ == 0 && i % looks_every == 0) await_a_look();
      model_.step(ones, weight_of(options_, number_));
    }
    all_applied();
    if (number_ == 0) {
      board_.last().copy_(values());
      model_.set_lr(rate);
      board_.counter(Board::Done).store(1);
    }
    board_.meet(turn_);
    for (int i = 0; i < increases; ++i) {
      model_.step(split(integers(options_, number_, i, bound_.elements())), weight_of(options_, number_));
    }
    all_applied();
    if (number_ == 0) board_.probed().copy_(values());
    if (options_.policy == shared::Policy::Locked || options_.policy == shared::Policy::Hogwild) meet_inside(ones);
    board_.meet(turn_);
    board_.counter(Board::AllDone).store(1);
  }

  void manage() {
    while (board_.counter(Board::AllDone).load() == 0) model_.manage(std::chrono::milliseconds(5));
  }

  /// Each snapshot that is taken while all elements are increased by one is one number, which follows from its version.
  void look() {
    const double each = options_.policy == shared::Policy::Averaged ? averages_every : 1;
    while (board_.counter(Board::Done).load() == 0) {
      const auto snapshot = model_.snapshot();
      if (board_.counter(Board::Done).load() != 0) return;
      board_.counter(Board::Snapshots).fetch_add(1);
      if (snapshot.torn) board_.counter(Board::TornAndSaid).fetch_add(1);
      bool whole = true;
      for (size_t i = 0; i < bound_.trained().size(); ++i) {
        whole =
            whole && (snapshot.tensors[i].second == each * static_cast<double>(snapshot.version)).all().item<bool>();
      }
      if (!whole) board_.counter(Board::TornSilently).fetch_add(1);
    }
  }

 private:
  shared::Model join(const std::string& name) {
    for (const auto& tensor : bound_.trained()) tensor.detach().zero_();
    auto how = model_options({training_, options_, board_, name});
    how.moving_average = 0;
    how.average_every = averages_every;
    how.gather = 1;  // So that each increase is one.
    how.observer = [this](const shared::Update&, const std::vector<at::Tensor>&) {
      if (watching_) wait_inside();
    };
    if (number_ == 0) return shared::Model::create(name, bound_.tensors(), plain_sgd(), how);
    return shared::Model::attach(name, bound_.tensors(), how);
  }

  void all_applied() {
    if (options_.policy == shared::Policy::Managed) model_.settle();
    board_.meet(turn_);
  }

  /// The others go on while somebody takes a snapshot.
  void await_a_look() {
    const auto& taken = board_.counter(Board::Snapshots);
    for (const uint64_t before = taken.load(); taken.load() == before;) ::sched_yield();
  }

  /// Do two get into the model at once? All come to the door; who is in first waits there until another is in too, or
  /// all of them have come and sleep: then something keeps them out.
  void meet_inside(const std::vector<at::Tensor>& gradients) {
    for (encounter_ = 1; encounter_ <= encounters; ++encounter_) {
      board_.meet(turn_);
      watching_ = true;
      board_.counter(Board::AtTheDoor).fetch_add(1);
      model_.step(gradients);
      watching_ = false;
    }
    board_.meet(turn_);
  }

  void wait_inside() {
    auto& inside = board_.counter(Board::Inside);
    auto& most = board_.counter(Board::MostInside);
    const uint64_t now = inside.fetch_add(1) + 1;
    for (uint64_t seen = most.load(); seen < now && !most.compare_exchange_weak(seen, now);) {
    }
    const auto all = static_cast<uint64_t>(encounter_ * options_.workers);
    uint64_t before = encounter_ - 1;
    if (board_.counter(Board::First).compare_exchange_strong(before, encounter_)) {
      const auto end = std::chrono::steady_clock::now() + long_enough;
      const auto kept_out = [&] { return board_.counter(Board::AtTheDoor).load() >= all && others_sleep(); };
      while (most.load() < 2 && !kept_out() && std::chrono::steady_clock::now() < end) ::sched_yield();
    }
    inside.fetch_sub(1);
  }

  bool others_sleep() const {
    for (int i = 0; i < options_.workers; ++i) {
      if (i != number_ && !sleeps(board_.joined(i).pid)) return false;
    }
    return true;
  }

  std::vector<at::Tensor> split(const at::Tensor& flat) const {
    std::vector<at::Tensor> parts;
    for (const auto& tensor : bound_.trained()) parts.push_back(at::empty(tensor.sizes(), tensor.options()));
    unflatten(flat, parts);
    return parts;
  }

  at::Tensor values() {
    std::vector<at::Tensor> parts;
    const auto snapshot = model_.snapshot();
    for (size_t i = 0; i < bound_.trained().size(); ++i) parts.push_back(snapshot.tensors[i].second);
    return flatten(parts, parts);
  }

  const int number_;
  const Training& training_;
  const Options& options_;
  Board& board_;
  uint32_t turn_ = 0;
  bool watching_ = false;
  uint64_t encounter_ = 0;
  Copy bound_;
  shared::Model model_;
};

}  // namespace

Conservation conserve(const Training& training, const Options& options) {
  const Copy shape(training, options);
  Board board({options.workers, 1, shape.elements(), options.dtype, false});
  const Setup setup{training, options, board, "farad-audit-sums-" + std::to_string(::getpid())};
  const int reader = options.workers, manager = options.workers + 1;
  in_processes(
      options.workers + (options.policy == shared::Policy::Managed ? 2 : 1),
      [&](int number) {
        Member member(number, setup);
        if (number == reader) {
          member.look();
        } else if (number == manager) {
          member.manage();
        } else {
          member.update();
        }
      },
      options.patience);

  Conservation found;
  // Where all gradients or all copies are averaged, one increase of each worker is one of the model.
  const bool together = options.policy == shared::Policy::AllReduced || options.policy == shared::Policy::Averaged;
  found.updates = together ? increases : static_cast<uint64_t>(options.workers) * increases;
  const auto increased = board.last().to(c10::ScalarType::Double);
  const auto all = static_cast<double>(found.updates);
  found.mean_lost = 1 - increased.mean().item<double>() / all;
  found.worst_lost = 1 - increased.min().item<double>() / all;
  auto expected = increased.clone();
  for (int worker = 0; worker < options.workers; ++worker) {
    for (int i = 0; i < increases; ++i) {
      const double weight = together ? weight_of(options, worker) : 1;
      expected.sub_(integers(options, worker, i, shape.elements()).to(c10::ScalarType::Double), rate * weight);
    }
  }
  found.wrong = static_cast<uint64_t>((expected != board.probed().to(c10::ScalarType::Double)).sum().item<int64_t>());
  found.snapshots = board.counter(Board::Snapshots).load();
  found.torn = board.counter(Board::TornSilently).load();
  found.said_torn = board.counter(Board::TornAndSaid).load();
  found.most_inside = board.counter(Board::MostInside).load();
  return found;
}

}  // namespace farad::audit
