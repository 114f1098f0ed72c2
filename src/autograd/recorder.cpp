#include "autograd/recorder.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>

#include "autograd/current.h"
#include "autograd/note.h"

namespace farad::autograd {
namespace {

size_t count_needy(const std::vector<at::Tensor>& tensors) {
  return static_cast<size_t>(std::count_if(tensors.begin(), tensors.end(), needs_gradient));
}

/// Makes `node` the history of those that require a gradient. They came as leaves; one may be there twice.
void make_results(const compat::Ptr<RecvNode>& node, const std::vector<at::Tensor>& tensors) {
  for (const auto& tensor : tensors) {
    if (!needs_gradient(tensor)) continue;
    if (tensor.is_leaf()) tensor.set_requires_grad(false);
    add_history(node, tensor);
  }
}

}  // namespace

/// A call that this worker makes.
class Recorder::Made final : public rpc::Interceptor::Made {
 public:
  Made(Recorder& recorder, std::shared_ptr<LocalContext> context, base::Rank to, const Note& note, CallName function)
      : recorder_(recorder),
        context_(std::move(context)),
        to_(to),
        pair_(note.pair),
        path_(note.path),
        grad_(!note.no_grad),
        function_(std::move(function)) {}

  void went(net::Peer to) override {
    if (context_) recorder_.contexts_.went(context_, pair_, to);
  }

  void never_went() override {
    if (pair_.value) recorder_.contexts_.drop(context_, pair_);
  }

  base::Status on_result(net::Peer from, std::span<const char> bytes, std::vector<at::Tensor>& tensors) override {
    if (!grad_) {
      for (auto& tensor : tensors) {
        if (tensor.defined()) tensor.set_requires_grad(false);
      }
    }
    if (bytes.empty()) return check_unrecorded(tensors);
    Note note;
    if (auto status = decode(bytes, note); !status.ok()) return status;
    if (!context_ || note.context != context_->id()) {
      return {base::Code::Protocol, "[autograd] the result of \"" + function_.text() + "\" is of another context"};
    }
    if (!context_->take_message(from)) return {};  // It has ended meanwhile.
    return recorder_.record_recv(context_, note.pair,
                                 {from, note.tensors, function_, note.rerun, false, {}, autograd::path_of(path_, 0)},
                                 tensors);
  }

 private:
  /// A callee records every result in need of a gradient, unless it has released the context. Where we made it, it does
  /// that before us only if it had lost us for a while: what it recorded before is gone, and better an error than a
  /// gradient too small. Elsewhere it has most likely ended, and we will hear of it: no call fails for that. If it has
  /// not, a pass that reaches this result fails, because the callee knows no such message.
  base::Status check_unrecorded(const std::vector<at::Tensor>& tensors) const {
    if (!context_ || !grad_ || count_needy(tensors) == 0 || context_->released()) return {};
    if (!context_->made_here()) {
      make_results(compat::make_node<RecvNode>(Passage{context_->id(), {}, to_, function_}), tensors);
      return {};
    }
    return {base::Code::PeerLost, "[autograd] the result of \"" + function_.text() + "\" was not recorded in context " +
                                      std::to_string(context_->id().value) + ": " + context_->group().name_of(to_) +
                                      " has ended its part in it, because the connection was lost"};
  }

  Recorder& recorder_;
  const std::shared_ptr<LocalContext> context_;  // null if made outside of one
  const base::Rank to_;
  const PairId pair_;
  const Path path_;
  const bool grad_;
  const CallName function_;
};

/// A call that this worker takes.
class Recorder::Taken final : public rpc::Interceptor::Taken {
 public:
  Taken(Recorder& recorder, std::shared_ptr<LocalContext> context, net::Peer from, const Note& note, CallName function)
      : recorder_(recorder),
        context_(std::move(context)),
        from_(from),
        grad_(!note.no_grad),
        path_(note.path),
        rerun_(note.rerun),
        function_(std::move(function)) {}

  void run(const std::function<void()>& function) override {
    const CurrentScope scope(&recorder_.contexts_, context_, path_);
    const RerunScope rerun(rerun_);
    const c10::AutoGradMode mode(grad_);
    function();
  }

  void on_reply(uint64_t call, const std::vector<at::Tensor>& result, wire::Bytes& note) override {
    if (!context_ || !grad_) return;
    auto send = recorder_.record_send(*context_, from_.rank, function_, result, path_of(path_, 0), rerun_, call);
    if (!send || !context_->begin_message(from_.rank)) return;
    pair_ = send->passage().pair;
    encode({context_->id(), false, pair_, send->num_inputs(), 0, rerun_}, note);
  }

  void replied(net::Peer to) override {
    if (pair_.value) recorder_.contexts_.went(context_, pair_, to);
  }

  void never_replied() override {
    if (pair_.value) recorder_.contexts_.drop(context_, pair_);
  }

 private:
  Recorder& recorder_;
  const std::shared_ptr<LocalContext> context_;  // null if its caller had none, or it is released
  const net::Peer from_;
  const bool grad_;
  const Path path_;
  const RerunId rerun_;
  const CallName function_;
  PairId pair_;  // of the result
};

Recorder::Recorder(base::Rank self, uint64_t birth, Contexts& contexts)
    : self_(self), contexts_(contexts), pairs_(first_number(birth)) {}

std::shared_ptr<rpc::Interceptor::Made> Recorder::on_call(std::shared_ptr<LocalContext> context, base::Rank to,
                                                          const rpc::Callee& callee,
                                                          const std::vector<at::Tensor>& arguments, wire::Bytes& note) {
  const bool grad = c10::GradMode::is_enabled();
  if (!context && grad) return nullptr;
  Note written{{}, !grad, {}, 0, 0, current_rerun()};
  if (context && !context->begin_message(to)) context = nullptr;
  if (!context && grad) return nullptr;
  CallName function(callee);
  if (context) {
    written.context = context->id();
    written.path = next_path(&contexts_);
    if (auto send = grad ? record_send(*context, to, function, arguments, written.path, written.rerun) : nullptr) {
      written.pair = send->passage().pair;
      written.tensors = send->num_inputs();
    }
  }
  encode(written, note);
  return std::make_shared<Made>(*this, std::move(context), to, written, std::move(function));
}

std::unique_ptr<rpc::Interceptor::Taken> Recorder::on_arrival(net::Peer from, const rpc::Callee& callee,
                                                              std::span<const char> bytes,
                                                              std::vector<at::Tensor>& arguments,
                                                              base::Status& status) {
  Note note;
  status = decode(bytes, note);
  if (!status.ok()) return nullptr;
  CallName function(callee);
  auto context = note.context.value ? contexts_.take_message(note.context, from) : nullptr;
  if (context && note.pair.value) {
    status =
        record_recv(context, note.pair, {from, note.tensors, function, note.rerun, false, {}, note.path}, arguments);
    if (!status.ok()) return nullptr;
  }
  return std::make_unique<Taken>(*this, std::move(context), from, note, std::move(function));
}

void Recorder::on_late_result(net::Peer from, std::span<const char> bytes) {
  Note note;
  if (!decode(bytes, note).ok() || !note.context.value) return;
  // Nobody has the tensors, so no root leads to them; but their sender waits to hear it.
  const auto context = contexts_.find(note.context);
  if (context && context->take_message(from) && note.pair.value)
    contexts_.add(context, note.pair, {from, note.tensors, "", note.rerun});
}

PairId Recorder::new_pairs(uint64_t count) {
  return PairId(make_id(self_, pairs_.fetch_add(count, std::memory_order_relaxed)));
}

compat::Ptr<SendNode> Recorder::record_send(LocalContext& context, base::Rank to, const CallName& call,
                                            const std::vector<at::Tensor>& tensors, uint64_t path, RerunId rerun,
                                            uint64_t answers, PairId gradient) {
  if (count_needy(tensors) == 0) return {};
  const bool is_gradient = gradient.value != 0;
  const Passage passage{context.id(), is_gradient ? gradient : new_pairs(), to, call, path, rerun, is_gradient};
  auto node = compat::make_node<SendNode>(passage, tensors);
  context.add(node, answers);
  return node;
}

base::Status Recorder::record_recv(const std::shared_ptr<LocalContext>& context, PairId pair,
                                   Recording::Received received, const std::vector<at::Tensor>& tensors) {
  const auto& call = received.call;
  if (const size_t needy = count_needy(tensors); needy != received.tensors || needy == 0) {
    return {base::Code::Protocol, "[autograd] a message of \"" + call.text() + "\" has " + std::to_string(needy) +
                                      " tensors that require a gradient, and says " + std::to_string(received.tensors)};
  }
  make_results(compat::make_node<RecvNode>(
                   Passage{context->id(), pair, received.from.rank, call, received.path, received.rerun}),
               tensors);
  contexts_.add(context, pair, std::move(received));
  return {};
}

}  // namespace farad::autograd
