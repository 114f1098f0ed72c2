#pragma once

#include <functional>
#include <memory>

#include "autograd/backward.h"
#include "autograd/contexts.h"
#include "autograd/current.h"
#include "autograd/recorder.h"
#include "rpc/interceptor.h"

namespace farad::autograd {

/// Gradients of one worker: its contexts, what is recorded in them, and their passes. Any thread, unless Interceptor
/// says otherwise.
class Service final : public rpc::Interceptor {
 public:
  Service(std::shared_ptr<const Group> group, uint64_t birth, Backward::Services services);

  Contexts& contexts() { return contexts_; }
  Backward& backward() { return backward_; }
  /// The context that calls of this thread are recorded in, or null.
  std::shared_ptr<LocalContext> current() const { return autograd::current(&contexts_); }
  void set_current(std::shared_ptr<LocalContext> context, Path path = 0) {
    autograd::set_current(&contexts_, std::move(context), path);
  }
  /// A task that will run as if it ran now: in this context, in this grad mode.
  std::function<void()> bind(std::function<void()> task);

  std::shared_ptr<Made> on_call(base::Rank to, const rpc::Callee& callee, const std::vector<at::Tensor>& arguments,
                                wire::Bytes& note) override;
  std::unique_ptr<Taken> on_arrival(net::Peer from, const rpc::Callee& callee, std::span<const char> note,
                                    std::vector<at::Tensor>& arguments, base::Status& status) override;
  void on_late_result(net::Peer from, std::span<const char> note) override;
  void on_unsent_reply(net::Peer to, uint64_t call) override;
  void on_message(net::Peer from, wire::Message&& message) override;
  void on_unsent(net::Peer to, const wire::Message& message, const base::Status& why) override;
  void on_lost(net::Peer peer, const base::Status& why) override;
  void close() override { contexts_.close(); }

 private:
  Contexts::Services services_of_contexts();

  net::Fabric& fabric_;
  const std::function<void(const base::Status&)> warn_;
  const std::function<void(std::function<void()>)> later_;
  Contexts contexts_;
  Recorder recorder_;
  Backward backward_;
};

}  // namespace farad::autograd
