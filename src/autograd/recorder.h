#pragma once

#include <atomic>

#include "autograd/contexts.h"
#include "rpc/interceptor.h"

namespace farad::autograd {

/// Records calls in contexts: pairs of a send here and a recv there, for the tensors of each message that require a
/// gradient. See rpc::Interceptor for who calls what.
///
/// Nothing is recorded outside of a context, under NoGradGuard, or for tensors that need no gradient. A call whose
/// caller gives up is recorded all the same: its message arrives, and what the function did with the arguments may be
/// reached in other ways.
class Recorder {
 public:
  Recorder(base::Rank self, uint64_t birth, Contexts& contexts);

  /// `context` is the current one of this thread, if there is one.
  std::shared_ptr<rpc::Interceptor::Made> on_call(std::shared_ptr<LocalContext> context, base::Rank to,
                                                  const rpc::Callee& callee, const std::vector<at::Tensor>& arguments,
                                                  wire::Bytes& note);
  std::unique_ptr<rpc::Interceptor::Taken> on_arrival(net::Peer from, const rpc::Callee& callee,
                                                      std::span<const char> note, std::vector<at::Tensor>& arguments,
                                                      base::Status& status);
  void on_late_result(net::Peer from, std::span<const char> note);

  /// Numbers for so many pairs, one after the other: the first.
  PairId new_pairs(uint64_t count = 1);
  /// Records a message of `context` that is about to go to `to`: of its tensors, those that require a gradient. Null
  /// if there is none. For the gradients of create_graph, too: as the pair `gradient`.
  compat::Ptr<SendNode> record_send(LocalContext& context, base::Rank to, const CallName& call,
                                    const std::vector<at::Tensor>& tensors, uint64_t path = 0, RerunId rerun = {},
                                    uint64_t answers = 0, PairId gradient = {});
  /// Records a message that came: makes the tensors that require a gradient results of the call.
  base::Status record_recv(const std::shared_ptr<LocalContext>& context, PairId pair, Recording::Received received,
                           const std::vector<at::Tensor>& tensors);

 private:
  class Made;
  class Taken;

  const base::Rank self_;
  Contexts& contexts_;
  std::atomic<uint64_t> pairs_;
};

}  // namespace farad::autograd
