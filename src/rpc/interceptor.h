#pragma once

#include <ATen/core/TensorBody.h>
#include <farad/detail/function.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "net/transport.h"

namespace farad::rpc {

/// What is called, for messages. Of a function that is known here, nothing is copied.
struct Callee {
  const detail::Function* known = nullptr;
  std::string name = {};  ///< if called by name
  std::string text() const { return known ? std::string(known->name) : name; }
};

/// What a layer above adds to calls, so that calls need not know of gradients: it sees the tensors of each message
/// before they go and after they have come, and sends a note along with them. A note is a few bytes in front of the
/// arguments or the result; none travels if there is nothing to say.
class Interceptor {
 public:
  virtual ~Interceptor() = default;

  /// One call that this worker makes. Lives until the call has ended.
  class Made {
   public:
    virtual ~Made() = default;
    /// It is on its way to this life of the callee, and arrives there or that life is lost. Any thread.
    virtual void went(net::Peer to) = 0;
    /// It did not go after all, or was taken back on its way. Any thread.
    virtual void never_went() = 0;
    /// Its result is here. On the driving thread: short. A Status that is not ok becomes that of the call.
    [[nodiscard]] virtual base::Status on_result(net::Peer from, std::span<const char> note,
                                                 std::vector<at::Tensor>& tensors) = 0;
  };
  /// On the calling thread, before anything is sent. Null if there is nothing to add. May throw: then the call is not
  /// made.
  virtual std::shared_ptr<Made> on_call(base::Rank to, const Callee& callee, const std::vector<at::Tensor>& arguments,
                                        wire::Bytes& note) = 0;

  /// One call that this worker takes. Lives until it has been answered.
  class Taken {
   public:
    virtual ~Taken() = default;
    /// Runs the function as if its caller did, on this thread.
    virtual void run(const std::function<void()>& function) = 0;
    /// Before the result goes to the caller. Any thread.
    virtual void on_reply(uint64_t call, const std::vector<at::Tensor>& result, wire::Bytes& note) = 0;
    /// It is on its way to this life of the caller, and arrives there or that life is lost. Any thread.
    virtual void replied(net::Peer to) = 0;
    /// The reply did not go after all. Any thread.
    virtual void never_replied() = 0;
  };
  /// When a call with a note has come, before its function runs. On the driving thread: short. `arguments` may be
  /// replaced. Null, with `status` saying why, if the note is none.
  virtual std::unique_ptr<Taken> on_arrival(net::Peer from, const Callee& callee, std::span<const char> note,
                                            std::vector<at::Tensor>& arguments, base::Status& status) = 0;

  /// A result has come that nobody waits for any more. On the driving thread.
  virtual void on_late_result(net::Peer from, std::span<const char> note) = 0;
  /// The reply to that call was taken back on its way. On the driving thread.
  virtual void on_unsent_reply(net::Peer to, uint64_t call) = 0;

  /// What other workers' layer of this kind has sent. On the driving thread.
  virtual void on_message(net::Peer from, wire::Message&& message) = 0;
  virtual void on_unsent(net::Peer to, const wire::Message& message, const base::Status& why) = 0;
  virtual void on_lost(net::Peer peer, const base::Status& why) = 0;

  /// The worker ends, and nothing comes any more: functions that wait for this layer must not wait any longer.
  virtual void close() = 0;
};

}  // namespace farad::rpc
