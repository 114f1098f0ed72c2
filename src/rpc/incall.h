#pragma once

#include <farad/detail/function.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/mutex.h"
#include "net/transport.h"
#include "rpc/interceptor.h"
#include "rpc/protocol.h"

namespace farad::rpc {

class Agent;

/// One call that this worker takes: runs the function and sends its reply.
class Incall final : public detail::Invocation, public std::enable_shared_from_this<Incall> {
 public:
  Incall(Agent& agent, net::Peer from, wire::Message message, base::TimePoint since);

  /// On the driving thread, before run().
  void arrived();
  /// On a thread that may wait. Afterwards, or once its object is there and its future is ready, the agent is told that
  /// it has finished.
  void run();
  /// Instead, on the driving thread: its caller is told why.
  void refuse(const base::Status& why);
  /// The caller has given up: the function can see that, and no reply is sent. Gives the future that the function has
  /// returned, if any: to be cancelled with no lock held, and not where messages are taken in, for that is foreign
  /// code.
  [[nodiscard]] std::shared_ptr<detail::FutureCore> cancel();
  bool cancelled() const { return cancelled_.load(); }

  net::Peer from() const { return from_; }
  uint64_t key = 0;  ///< the agent's, to find it again
  uint64_t id() const { return message_.tag; }
  const base::TimePoint since;  ///< when it came
  /// Once it has arrived().
  const CallHeader& header() const { return header_; }
  /// The name of what it calls. Any thread, once it has arrived().
  std::string function() const;

  detail::Reader& arguments() override { return *arguments_; }
  detail::Writer result() override;
  void result_later(std::shared_ptr<detail::FutureCore> core, std::function<void(detail::Writer&)> write) override;
  void* object() override { return object_.get(); }
  void keep(std::shared_ptr<void> value) override;
  void keep_later(std::shared_ptr<detail::FutureCore> core, std::function<std::shared_ptr<void>()> make) override;

  /// The one that this thread runs, or null.
  static Incall* current();

 private:
  void take_references();
  /// The called function; null for an operator of that name.
  const detail::Function* find_function();
  void run_function(const detail::Function* function);
  void execute(const detail::Function* function);
  void call_operator();
  /// Called by name, a function does not know that its result is to stay here.
  void keep_result_of_name();
  void later(std::shared_ptr<detail::FutureCore> core, std::function<void()> finish);
  void reply();
  void fail(const std::exception_ptr& error);
  void post_failure(const Failure& failure);

  Agent& agent_;
  const net::Peer from_;
  wire::Message message_;
  size_t arguments_at_ = 0;                    // in the body
  base::Status arrival_;                       // whether it is a call at all
  std::unique_ptr<Interceptor::Taken> taken_;  // What a layer above adds; null if nothing.
  CallHeader header_;
  detail::References references_;  // among the arguments
  std::shared_ptr<void> object_;
  std::optional<detail::Reader> arguments_;
  detail::Packet result_;
  bool later_ = false;
  std::atomic<bool> cancelled_{false};
  base::Mutex mutex_;
  std::weak_ptr<detail::FutureCore> returned_ GUARDED_BY(mutex_);  // by the function
};

/// "std::runtime_error", not what the compiler makes of it.
std::string type_of(const std::exception& error);
/// What a caller is to learn of an exception; the stack only if it is wanted.
Failure describe(const std::exception_ptr& error, bool with_stack = false);

}  // namespace farad::rpc
