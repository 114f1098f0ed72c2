#include "collectives/exchange.h"

#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sum.h>
#include <c10/core/GradMode.h>
#include <farad/error.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <utility>

#include "autograd/engine/deferred_node.h"
#include "autograd/local_context.h"
#include "autograd/running_pass.h"
#include "autograd/torch_compat.h"
#include "collectives/torch_compat.h"

namespace farad::collectives {
namespace {

using torch::autograd::variable_list;

constexpr int nobody = -1;  // Where a member's number is expected: of tokens, and of what is beside.

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
    std::vector<int> given;    ///< by next edge: whom it was given to
    std::vector<int> got;      ///< by input: whom it came from
    std::vector<bool> owed;    ///< by input: whether that one wants its gradient
    std::vector<int> cut_off;  ///< those that no backward of this can reach
  };
  ExchangeNode(std::shared_ptr<Session> session, const Exchange& what, const variable_list& given, Ways ways)
      : DeferredNode(torch::autograd::collect_next_edges(given)),
        session_(std::move(session)),
        path_(what.path),
        signature_(what.signature),
        context_(session_->context()),
        in_one_context_(what.in_one_context),
        ways_(std::move(ways)) {
    signature_.backward = true;
  }

  ~ExchangeNode() override {
    // Nobody can get here any more. Those who wait for its gradient would do so in vain.
    if (fired_.load() == 0 || recorded_.load()) end();
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
    const auto name = uint64_t{1} << 63 | std::hash<autograd::PassId>()(pass);
    if (in_one_context_) return name;
    if (may_be_in_one_context()) {
      const std::lock_guard lock(mutex_);
      names_[count] = name;
    }
    return count;
  }
  void begin(uint64_t which, variable_list gradients, std::function<void(Result)> done) override;
  void give_up(uint64_t which, bool begun, const base::Status& why) override {
    auto back = backward(which, {});
    take_name(which);
    if (!begun) session_->say_failed(back.path, back.to, why);
    session_->abandon(back.path);
  }
  std::string waits_for(uint64_t which) const override {
    const auto missing = session_->who_is_missing(backward(which, {}).path);
    return full_name() + (missing.empty() ? "" : ": ") + missing;
  }
  void end() override {
    if (!ended_.exchange(true)) session_->say_ended(path_, creditors(), fired_.load());
  }
  uint32_t pulse() const override { return pulse_; }

 protected:
  variable_list apply(variable_list&& gradients) override {
    auto back = plain_backward(fired_.fetch_add(1), gradients);
    // It waits for the others, and a pass must not: those that it belongs to do not call it.
    if (const auto* pass = autograd::running_pass(this)) refuse(back, why_not_of(pass->context->id().value));
    if (ended_.load()) {
      throw Error("[collectives] " + full_name() + ": context " + std::to_string(context_) +
                  ", in which it was recorded, has ended, and to the others this member counts as zero since then");
    }
    if (!ways_.cut_off.empty()) refuse(back, why_cut_off());
    return pick(exchange(session_, std::move(back)));
  }

 private:
  /// Who sends hears nothing of who receives until there is a gradient.
  bool may_be_in_one_context() const {
    return context_ != 0 && !in_one_context_ && signature_.operation == Operation::Send;
  }

  /// What members of one context call the pass that is the `which`-th here; 0 if they would say `which` too.
  uint64_t take_name(uint64_t which) {
    const std::lock_guard lock(mutex_);
    const auto found = names_.extract(which);
    return found ? found.mapped() : 0;
  }

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
      if (member != session_->rank() && member != nobody) back.from.push_back(member);
    }
    return back;
  }

  /// The same under a plain backward(). If that is recorded, whoever comes to it comes here next, whatever it got: in
  /// a Context passes see to that. What has led here so comes after it for the same reason.
  Exchange plain_backward(uint64_t which, const variable_list& gradients) {
    auto back = backward(which, gradients);
    if (!c10::GradMode::is_enabled()) return back;
    recorded_.store(true);
    back.wants_token = true;
    back.can_return = num_outputs() > 0;
    auto lead = at::empty({0});
    torch::autograd::impl::set_gradient_edge(lead, {compat::pointer_to(*this), pulse_});
    back.beside = {std::move(lead), gradients[pulse_]};
    return back;
  }

  /// Throws, and tells those that wait for this.
  [[noreturn]] void refuse(const Exchange& back, std::string text) const {
    const base::Status why{base::Code::Invalid, std::move(text)};
    session_->say_failed(back.path, back.to, why);
    std::rethrow_exception(why.exception());
  }

  std::string why_not_of(int64_t context) const {
    if (context == context_) {
      return "[collectives] the function of a checkpoint, run again, led to the " + full_name() +
             " outside of it: a tensor with history that it uses has to be one of its inputs";
    }
    return "[collectives] backward in context " + std::to_string(context) + " reached the " + full_name() +
           ", which was recorded " + (context_ == 0 ? "in none" : "in context " + std::to_string(context_)) +
           ": detach() what a context takes from elsewhere, or record both in one";
  }

  std::string why_cut_off() const {
    std::string who;
    for (const int member : ways_.cut_off) who += (who.empty() ? "" : ", ") + session_->name_of(member);
    return "[collectives] " + name() + ", differentiated: it gave " + who +
           " no gradient, so that nothing there leads to it a second time; give a tensor that requires a gradient "
           "beside the operation there, and use its gradient, or use a Context";
  }

  std::string full_name() const { return Meetings::text_of(signature_, path_) + " of " + to_text(session_->id()); }

  /// By next edge, what came back for it.
  variable_list pick(const Received& received) const {
    variable_list gradients;
    for (size_t i = 0; i < ways_.given.size(); ++i) {
      const int member = ways_.given[i];
      auto& gradient = gradients.emplace_back();
      if (member != nobody) gradient = received.tensors[static_cast<size_t>(member)];
      if (gradient.defined() || !received.token.defined() || !received.token.requires_grad()) continue;
      const auto& edge = next_edge(i);
      gradient = at::add(edge.function->input_metadata(edge.input_nr).zeros_like(), at::sum(received.token));
    }
    return gradients;
  }

  const std::shared_ptr<Session> session_;
  const Path path_;
  Signature signature_;
  const int64_t context_;  // it was recorded in; 0 = none
  const bool in_one_context_;
  const Ways ways_;
  uint32_t pulse_ = 0;
  std::atomic<uint64_t> fired_{0};
  std::atomic<bool> recorded_{false};  // at least one of its backwards can itself be differentiated
  std::atomic<bool> ended_{false};
  std::mutex mutex_;
  std::map<uint64_t, uint64_t> names_;  // of passes that have come here and not begun
};

Session::Request request_of(const Session& session, const Exchange& what) {
  Session::Request request{what.path, what.signature, {}, {}, what.to, what.from, what.can_return};
  request.tensors.resize(what.gives.size());
  request.requires_grad.resize(what.gives.size());
  const bool records = c10::GradMode::is_enabled();
  const c10::AutoGradMode no_history(false);
  for (const int member : what.to) {
    const auto& given = what.gives[static_cast<size_t>(member)];
    if (member == session.rank() || !given.defined()) continue;
    request.tensors[static_cast<size_t>(member)] = passing(given);
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

/// Of an operation in which all hear of all; and where one hears of one, at that one. The other one, who sends, hears
/// of it with the first gradient.
bool are_in_one_context(const Session& session, const Exchange& what, const std::map<int, Contribution>& came) {
  const auto mine = session.context();
  const bool is_send = what.from.empty() && !what.to.empty();
  return mine != 0 && !is_send && came.size() == what.from.size() &&
         std::all_of(came.begin(), came.end(), [&](const auto& each) { return each.second.context == mine; });
}

/// Whether every member has something by which the next backward reaches this one. Of those that send nothing here it
/// is not known; they have, if they got something.
bool all_can_return(const Exchange& what, const std::map<int, Contribution>& came) {
  return what.can_return && !(what.to.empty() && what.from.empty()) &&
         std::all_of(came.begin(), came.end(),
                     [](const auto& each) { return each.second.records && each.second.can_return; });
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
    // Who was waited for and did not come has ended, and will never come for a gradient either.
    const bool waits = found != came.end()
                           ? found->second.records
                           : i == self || std::find(what.from.begin(), what.from.end(), member) == what.from.end();
    if (const auto& gift = what.gives[i]; gift.defined() && gift.requires_grad() && recording && waits) {
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
      if (!found->second.can_return) ways.cut_off.push_back(member);
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
  // If one has to come to a backward again, all have to: also those for whom it makes no difference.
  if (!anything && !(what.signature.backward && all_can_return(what, came))) return received;
  for (const auto& tensor : what.beside) {
    if (!tensor.defined() || !tensor.requires_grad()) continue;
    given.push_back(tensor);
    ways.given.push_back(nobody);
  }
  if (received.token.defined()) {
    outputs.push_back(received.token);
    ways.got.push_back(nobody);
    ways.owed.push_back(false);
  }
  if (!what.signature.backward) what.in_one_context = are_in_one_context(*session, what, came);
  const auto node = autograd::compat::make_node<ExchangeNode>(session, what, given, std::move(ways));
  keeping.leave_it();
  ExchangeNode::attach(node, outputs);
  session->record(node);
  return received;
}

void ExchangeNode::begin(uint64_t which, variable_list gradients, std::function<void(Result)> done) {
  auto back = backward(which, gradients);
  auto request = request_of(*session_, back);
  auto keeping = std::make_shared<Keeping>(session_, back.path);
  std::shared_ptr<Keeping> by_name;
  Path other_name;
  if (const auto name = take_name(which)) {
    other_name = path_;
    other_name.push_back(name);
    by_name = std::make_shared<Keeping>(session_, other_name);
    request.other_name = other_name;
  }
  session_->start(std::move(request), [this, self = compat::pointer_to(*this), keeping, by_name, other_name,
                                       back = std::move(back), done = std::move(done)](Session::Outcome outcome) {
    auto shared = std::make_shared<Session::Outcome>(std::move(outcome));
    done([this, self, keeping, by_name, other_name, back, shared]() mutable {
      const auto& came = shared->came;
      const bool named = by_name && !came.empty() && came.begin()->second.context == context_;
      if (named) {  // Both are in one context, and so its name is the one for what comes of it, too.
        back.path = other_name;
        back.in_one_context = true;
      }
      return pick(conclude(session_, back, std::move(*shared), named ? *by_name : *keeping));
    });
  });
}

}  // namespace

Received exchange(const std::shared_ptr<Session>& session, Exchange what) {
  Keeping keeping(session, what.path);
  auto outcome = session->meet(request_of(*session, what));
  return conclude(session, what, std::move(outcome), keeping);
}

Received as_if_exchanged(const std::shared_ptr<Session>& session, Exchange what, std::map<int, Contribution> came) {
  Keeping keeping(session, what.path);
  return conclude(session, what, {{}, std::move(came)}, keeping);
}

}  // namespace farad::collectives
