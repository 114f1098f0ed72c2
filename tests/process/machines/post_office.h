#pragma once

#include <memory>
#include <set>

#include "base/mutex.h"
#include "net/fabric.h"

namespace farad::test {

/// What the messages mean.
enum class Letter : uint8_t {
  Question,  ///< to be sent back as an Answer
  Answer,
  GoodBye,
};

/// A worker that sends every question back, and can ask one at a time.
class PostOffice : private net::Sink {
 public:
  /// Joins the group that the environment describes; throws what Fabric::join throws.
  PostOffice();
  ~PostOffice() override;

  net::Fabric& fabric() { return *fabric_; }

  /// Sends `letter` to `rank` and returns what it sends back. Throws if that worker is lost meanwhile.
  wire::Message ask(base::Rank rank, wire::Message letter);
  /// Tells everybody that we are done, and waits until all the others are.
  void finish();

 private:
  void on_message(net::Peer from, wire::Message&& message) override;
  void on_lost(net::Peer peer, const base::Status& why) override;
  void on_unsent(net::Peer, const wire::Message&, const base::Status& why) override;
  void fail(const base::Status& why);

  std::unique_ptr<net::Fabric> fabric_;
  base::Mutex mutex_;
  std::shared_ptr<net::Waiter> asking_ GUARDED_BY(mutex_);
  wire::Message answer_ GUARDED_BY(mutex_);
  base::Status failure_ GUARDED_BY(mutex_);
  std::set<base::Rank> done_ GUARDED_BY(mutex_);  // Who has said good-bye.
  std::shared_ptr<net::Waiter> all_done_;
};

}  // namespace farad::test
