#pragma once

#include <farad/detail/reference.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "net/transport.h"

namespace farad::rpc {

/// What a message says of a reference that it lends.
struct Loan {
  detail::RefId id;
  base::Rank owner;
  uint64_t lend = 0;  ///< the lender's number, to be told when the owner knows; 0 if the owner lends itself
  uint64_t hold = 0;  ///< then: the hold that the owner has made for the receiver
};

/// Who keeps the referenced values of a worker, as far as calls are concerned. Any thread.
class References {
 public:
  virtual ~References() = default;

  /// Invalid, saying why, if one of these references means nothing to the workers of this group.
  virtual base::Status may_lend(const detail::References& references) const = 0;
  /// Before a message with these references goes to `to`.
  virtual std::vector<Loan> lend(base::Rank to, const detail::References& references) = 0;
  /// It went to that life of the receiver; `makes`, if it was a call that makes a value there.
  virtual void sent(net::Peer to, const std::vector<Loan>& loans, const std::optional<detail::RefId>& makes) = 0;
  /// The message did not go after all; `to` has no incarnation if it was not said where it would have gone.
  virtual void take_back(net::Peer to, const std::vector<Loan>& loans) = 0;
  /// When a message with these loans came from `from`, in a call of `function` or its reply.
  virtual detail::References receive(net::Peer from, const std::vector<Loan>& loans, const std::string& function) = 0;

  /// A call of `function` that makes the value of `id` has come; its maker holds it.
  virtual void expect(net::Peer maker, const detail::RefId& id, const std::string& function) = 0;
  virtual void keep(const detail::RefId& id, std::shared_ptr<void> value) = 0;
  virtual void fail(const detail::RefId& id, std::exception_ptr error) = 0;
  /// Calls `then` with the value or the error, once there is one: now, or when the call that makes it has ended. That
  /// call may still be on its way, even if we have heard of the reference from another worker.
  using Then = std::function<void(std::shared_ptr<void> value, std::exception_ptr error)>;
  virtual void when_ready(const detail::RefId& id, Then then) = 0;

  virtual void on_message(net::Peer from, const wire::Message& message) = 0;
  virtual void on_lost(net::Peer peer) = 0;
};

}  // namespace farad::rpc
