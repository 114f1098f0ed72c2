#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "collectives/early_letters.h"
#include "collectives/session.h"
#include "rpc/mailbox.h"

namespace farad::collectives {

/// The groups of one worker. Any thread, unless Mailbox says otherwise.
class Service final : public rpc::Mailbox {
 public:
  explicit Service(Services services)
      : services_(std::move(services)), early_(services_.fabric.self().rank, services_.early_bytes) {}

  /// `rank` is the place of this worker among `ranks`.
  std::shared_ptr<Session> make(std::vector<uint16_t> ranks, int rank, std::chrono::milliseconds timeout,
                                const Algorithms& algorithms = {});

  /// To which operation that worker has come in a group other than the one that asks: where nobody here takes part in
  /// it yet, or of a group that was not made here. Empty if nothing is known.
  std::string heard_of(base::Rank rank, const Session& asks);

  void on_message(net::Peer from, wire::Message&& message) override;
  void on_lost(net::Peer peer, const base::Status& why) override;
  void close() override;

 private:
  std::vector<std::shared_ptr<Session>> all();
  void refuse(const Letter& letter, const base::Status& why);
  base::Status why_overrun(base::Rank rank) const;

  const Services services_;
  base::Mutex mutex_;
  base::Status closed_ GUARDED_BY(mutex_);  // once it is
  std::map<GroupId, std::weak_ptr<Session>> sessions_ GUARDED_BY(mutex_);
  std::map<std::vector<uint16_t>, uint64_t> made_ GUARDED_BY(mutex_);  // by ranks: how many
  // The latest life of each that was lost, with why: groups made later hear of it too.
  std::map<base::Rank, std::pair<base::Incarnation, base::Status>> lost_ GUARDED_BY(mutex_);
  EarlyLetters early_ GUARDED_BY(mutex_);
};

}  // namespace farad::collectives
