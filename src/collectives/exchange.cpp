#include "collectives/exchange.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <utility>

#include "autograd/engine/deferred_node.h"
#include "autograd/torch_compat.h"

namespace farad::collectives {
namespace {

using torch::autograd::variable_list;

constexpr int token = -1;  // Where a member's number is expected: it came from nobody.

bool can_be_differentiated(const at::Tensor& tensor) {
  return tensor.defined() && (at::isFloatingType(tensor.scalar_type()) || at::isComplexType(tensor.scalar_type()));
}

/// The exchange in the graph.
///
/// A plain backward() calls it, and it waits for the others. In a pass of a Context nobody waits: what the others have
/// to say completes it.
class ExchangeNode final : public autograd::DeferredNode {
 public:
  struct Ways {
    std::vector<int> given;  ///< by next edge: whom it was given to
    std::vector<int> got;    ///< by input: whom it came from
    std::vector<bool> owed;  ///< by input: whether that one wants its gradient
  };
  ExchangeNode(std::shared_ptr<Session> session, const Exchange& what, const variable_list& given, Ways ways)
      : DeferredNode(torch::autograd::collect_next_edges(given)),
        session_(std::move(session)),
        path_(what.path),
        signature_(what.signature),
        in_one_context_(what.in_one_context),
        ways_(std::move(ways)) {
    signature_.backward = true;
  }

  ~ExchangeNode() override {
    // Nobody can get here any more. Those who wait for its gradient would do so in vain.
    if (fired_.load() == 0) end();
    session_->end(path_);
  }

  /// Makes it the history of `outputs`, in the order of its ways.
  static void attach(const autograd::compat::Ptr<ExchangeNode>& node, const variable_list& outputs) {
    for (const auto& output : outputs) {
      torch::autograd::impl::set_gradient_edge(output, {node, node->add_input_metadata(output)});
    }
    node->pulse_ = node->add_input_metadata(at::empty({0}));
  }

  std::string name() const override { return to_text(signature_); }

  uint64_t enter(autograd::PassId pass) override {
    const auto count = fired_.fetch_add(1);
    // Workers of one context may hear of its passes in different order; but they know them by name.
    return in_one_context_ ? uint64_t{1} << 63 | pass.number << 16 | pass.root.value : count;
  }
  void begin(uint64_t which, variable_list gradients, std::function<void(Result)> done) override;
  void give_up(uint64_t which, bool begun, const base::Status& why) override {
    auto back = backward(which, {});
    if (!begun) session_->say_failed(back.path, back.to, why);
    session_->abandon(back.path);
  }
  void end() override {
    if (!ended_.exchange(true)) session_->say_ended(path_, creditors(), fired_.load());
  }
  uint32_t pulse() const override { return pulse_; }

 protected:
  variable_list apply(variable_list&& gradients) override {
    return pick(ways_.given, exchange(session_, backward(fired_.fetch_add(1), gradients)));
  }

 private:
  /// Those that wait for gradients from here, in order.
  std::vector<int> creditors() const {
    std::vector<int> members;
    for (size_t i = 0; i < ways_.got.size(); ++i) {
      if (ways_.owed[i] && ways_.got[i] != session_->rank()) members.push_back(ways_.got[i]);
    }
    return members;
  }

  Exchange backward(uint64_t which, const variable_list& gradients) const {
    Exchange back{path_, signature_, std::vector<at::Tensor>(static_cast<size_t>(session_->size()))};
    back.path.push_back(which);
    back.to = creditors();
    back.keeps_own = false;
    back.in_one_context = in_one_context_;
    for (size_t i = 0; i < ways_.got.size() && i < gradients.size(); ++i) {
      if (ways_.owed[i]) back.gives[static_cast<size_t>(ways_.got[i])] = gradients[i];
    }
    for (const int member : ways_.given) {
      if (member != session_->rank()) back.from.push_back(member);
    }
    return back;
  }

  static variable_list pick(const std::vector<int>& members, const Received& received) {
    variable_list gradients;
    for (const int member : members) gradients.push_back(received.tensors[static_cast<size_t>(member)]);
    return gradients;
  }

  const std::shared_ptr<Session> session_;
  const Path path_;
  Signature signature_;
  const bool in_one_context_;
  const Ways ways_;
  uint32_t pulse_ = 0;
  std::atomic<uint64_t> fired_{0};
  std::atomic<bool> ended_{false};
};

Session::Request request_of(const Session& session, const Exchange& what) {
  Session::Request request{what.path, what.signature, {}, {}, what.to, what.from};
  request.tensors.resize(what.gives.size());
  request.requires_grad.resize(what.gives.size());
  // The caller may change what it gave as soon as the call returns, and letters may still be on their way then.
  std::map<const c10::TensorImpl*, at::Tensor> copies;
  const bool records = c10::GradMode::is_enabled();
  const c10::AutoGradMode no_history(false);
  for (const int member : what.to) {
    const auto& given = what.gives[static_cast<size_t>(member)];
    if (member == session.rank() || !given.defined()) continue;
    auto& copy = copies[given.unsafeGetTensorImpl()];
    if (!copy.defined()) copy = given.detach().clone(at::MemoryFormat::Contiguous);
    request.tensors[static_cast<size_t>(member)] = copy;
    request.requires_grad[static_cast<size_t>(member)] = records && given.requires_grad();
  }
  return request;
}

at::Tensor make_token(const Exchange& what) {
  for (const auto& given : what.gives) {
    if (can_be_differentiated(given)) return at::empty({0}, given.options().requires_grad(false));
  }
  return at::empty({0});
}

/// Only of an operation in which all hear of all: else one of two would say so, and the other could not know.
bool are_in_one_context(const Session& session, const Exchange& what, const std::map<int, Contribution>& came) {
  const auto mine = session.services().context();
  const size_t others = static_cast<size_t>(session.size()) - 1;
  return mine != 0 && what.to.size() == others && what.from.size() == others && came.size() == others &&
         std::all_of(came.begin(), came.end(), [&](const auto& each) { return each.second.context == mine; });
}

/// Ends what was begun for an exchange, unless a node sees to that.
class Keeping {
 public:
  Keeping(std::shared_ptr<Session> session, const Path& path) : session_(std::move(session)), path_(path) {
    session_->begin(path_);
  }
  ~Keeping() {
    if (session_) session_->end(path_);
  }
  Keeping(const Keeping&) = delete;
  void leave_it() { session_.reset(); }

 private:
  std::shared_ptr<Session> session_;
  const Path path_;
};

/// What came of an exchange, and its node if there is something to be differentiated.
Received conclude(const std::shared_ptr<Session>& session, Exchange& what, Session::Outcome outcome, Keeping& keeping) {
  outcome.status.raise();
  auto& came = outcome.came;
  const auto self = static_cast<size_t>(session->rank());
  const bool recording = c10::GradMode::is_enabled();
  Received received;
  received.tensors.resize(what.gives.size());
  variable_list given;
  ExchangeNode::Ways ways;
  std::vector<int> unrecorded;  // Those that would wait for a gradient that they never get.
  for (size_t i = 0; i < what.gives.size(); ++i) {
    const auto member = static_cast<int>(i);
    const auto found = came.find(member);
    if (const auto& gift = what.gives[i];
        gift.defined() && gift.requires_grad() && recording && (found == came.end() || found->second.records)) {
      given.push_back(gift);
      ways.given.push_back(member);
    }
    if (i == self && what.gives[i].defined()) {
      const c10::AutoGradMode no_history(false);
      received.tensors[i] = what.keeps_own ? what.gives[i].detach().clone() : what.gives[i].detach();
    } else if (found != came.end()) {
      received.tensors[i] = std::move(found->second.tensor);
      const bool heard = std::find(what.to.begin(), what.to.end(), member) != what.to.end();
      if (found->second.requires_grad && !recording && !heard) unrecorded.push_back(member);
    }
  }
  if (!unrecorded.empty()) session->say_ended(what.path, unrecorded, 0);
  if (what.wants_token) received.token = make_token(what);
  if (!recording) return received;

  const auto is_owed = [&](size_t i) {
    return i == self ? what.gives[i].requires_grad() : came.at(static_cast<int>(i)).requires_grad;
  };
  variable_list outputs;
  bool anything = !given.empty();
  for (size_t i = 0; i < received.tensors.size(); ++i) {
    if (!can_be_differentiated(received.tensors[i])) continue;
    outputs.push_back(received.tensors[i]);
    ways.got.push_back(static_cast<int>(i));
    ways.owed.push_back(is_owed(i));
    anything = anything || is_owed(i);
  }
  if (!anything) return received;
  if (received.token.defined()) {
    outputs.push_back(received.token);
    ways.got.push_back(token);
    ways.owed.push_back(false);
  }
  if (!what.signature.backward) what.in_one_context = are_in_one_context(*session, what, came);
  const auto node = autograd::compat::make_node<ExchangeNode>(session, what, given, std::move(ways));
  keeping.leave_it();
  ExchangeNode::attach(node, outputs);
  session->services().record(node);
  return received;
}

void ExchangeNode::begin(uint64_t which, variable_list gradients, std::function<void(Result)> done) {
  auto back = backward(which, gradients);
  auto request = request_of(*session_, back);
  auto keeping = std::make_shared<Keeping>(session_, back.path);
  session_->start(std::move(request), [session = session_, given = ways_.given, keeping, back = std::move(back),
                                       done = std::move(done)](Session::Outcome outcome) {
    auto shared = std::make_shared<Session::Outcome>(std::move(outcome));
    done([session, given, keeping, back, shared]() mutable {
      return pick(given, conclude(session, back, std::move(*shared), *keeping));
    });
  });
}

}  // namespace

Received exchange(const std::shared_ptr<Session>& session, Exchange what) {
  Keeping keeping(session, what.path);
  auto outcome = session->meet(request_of(*session, what));
  return conclude(session, what, std::move(outcome), keeping);
}

}  // namespace farad::collectives
