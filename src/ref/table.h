#pragma once

#include <farad/debug.h>
#include <farad/detail/reference.h>

#include <atomic>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "rpc/references.h"
#include "wire/message.h"

namespace farad::ref {

class Table;

}  // namespace farad::ref

namespace farad::detail {

/// See <farad/detail/reference.h>.
class RefHandle {
 public:
  RefHandle(std::shared_ptr<ref::Table> table, RefId id, base::Rank owner, uint64_t hold, std::string origin)
      : table(std::move(table)), id(id), owner(owner), hold(hold), origin(std::move(origin)) {}
  ~RefHandle();
  RefHandle(const RefHandle&) = delete;

  const std::shared_ptr<ref::Table> table;
  const RefId id;
  const base::Rank owner;
  const uint64_t hold;       ///< what the owner knows our share by; 0 if that is ourselves
  const std::string origin;  ///< how this worker came by it, for people
  std::atomic<bool> confirmed{false};
  std::atomic<bool> lost{false};  ///< the owner is gone, and the value with it

  /// The call that was to make the value never got there: why. Null if all is well as far as we know.
  std::exception_ptr failure() const {
    base::Lock lock(mutex);
    return why;
  }
  void fail(std::exception_ptr error) {
    base::Lock lock(mutex);
    why = std::move(error);
  }

 private:
  mutable base::Mutex mutex;
  std::exception_ptr why GUARDED_BY(mutex);
};

}  // namespace farad::detail

namespace farad::ref {

/// The references of one worker: values that live here, and shares of values that live elsewhere.
///
/// The owner knows every worker's *holds* on a value and frees it when there is none, and no handle of its own. A hold
/// is a number, so that its end can be told from that of an earlier one whatever overtakes what.
///
/// | event | what is done |
/// |---|---|
/// | `remote` | the maker picks the id; the call that makes the value tells the owner, which notes the maker's hold |
/// | the owner lends | it notes a hold for the receiver and sends it along: nothing more is needed |
/// | another lends | it keeps its own share; the receiver asks the owner for a hold (Hold), the owner notes it (Noted),
/// the receiver tells the lender (Returned), which may let go now | | a share ends | its worker tells the owner (Drop);
/// one that comes before its Hold waits for it | | a worker is lost | its holds are dropped, what was lent to it is let
/// go of, shares of its values are marked lost |
///
/// So the function that was lent a reference runs at once, and the value cannot go away in between: somebody always
/// holds it.
class Table final : public rpc::References, public std::enable_shared_from_this<Table> {
 public:
  struct Services {
    std::function<void(base::Rank to, wire::Message message)> post;  ///< never waits
    std::function<void(std::function<void()> task)> later;           ///< where values are destroyed and uses go on
    std::function<std::string(base::Rank)> name_of;
    std::weak_ptr<detail::WorkerCore> core;  ///< only to be passed on
  };

  Table(base::Rank self, uint64_t birth, Services services);

  const std::weak_ptr<detail::WorkerCore>& core() const { return services_.core; }

  std::shared_ptr<detail::RefHandle> own(std::shared_ptr<void> value, std::string origin);
  /// For a value that `owner` is about to be asked to make.
  std::shared_ptr<detail::RefHandle> begin(base::Rank owner, std::string_view function);
  /// The owner has answered the call that makes it.
  void confirm(const std::shared_ptr<detail::RefHandle>& handle);

  std::vector<rpc::Loan> lend(base::Rank to, const detail::References& references) override;
  detail::References receive(base::Rank from, const std::vector<rpc::Loan>& loans,
                             const std::string& function) override;
  void expect(base::Rank maker, const detail::RefId& id, const std::string& function) override;
  void keep(const detail::RefId& id, std::shared_ptr<void> value) override;
  void fail(const detail::RefId& id, std::exception_ptr error) override;
  void when_ready(const detail::RefId& id, Then then) override;

  void take_back(base::Rank to, const std::vector<rpc::Loan>& loans) override;
  void on_message(base::Rank from, const wire::Message& message) override;
  void on_lost(base::Rank rank) override;
  /// Nothing is sent any more.
  void close();

  struct Stats {
    size_t owned = 0;
    size_t borrowed = 0;
    size_t lent = 0;
    size_t unsettled = 0;  ///< holds asked for and not noted, drops that came before their holds
  };
  Stats stats() const;
  /// Adds what is referred to.
  void describe(Debug& debug) const;
  /// What this worker still holds by handles of its own.
  std::vector<Debug::Reference> handles() const;

 private:
  friend class detail::RefHandle;

  enum class What : uint8_t { Hold, Noted, Returned, Drop };
  struct Note {
    What what;
    detail::RefId id;
    uint64_t number = 0;  // Hold, Noted, Drop: the hold. Returned: the lender's number.
  };
  using Outbox = std::vector<std::pair<base::Rank, Note>>;
  using Holder = std::pair<base::Rank, uint64_t>;
  /// Handles to be let go of once the lock is: each may turn out to be the last, and its end takes the lock.
  using Handles = std::vector<std::shared_ptr<detail::RefHandle>>;

  struct Owned {
    std::shared_ptr<void> value;
    std::exception_ptr error;
    bool expected = false;  // The call that makes it has come.
    bool ready = false;
    std::vector<Then> waiting;
    std::set<Holder> holders;
    size_t handles = 0;  // of our own
    std::string origin = {};
  };
  struct Lent {
    std::shared_ptr<detail::RefHandle> handle;
    base::Rank to;
  };
  struct Asked {  // for a hold that the owner has not noted yet
    std::weak_ptr<detail::RefHandle> handle;
    std::vector<std::pair<base::Rank, uint64_t>> lenders;  // whom to tell
    base::Rank owner;
  };

  void send(Outbox out);
  static wire::Message encode(const Note& note);
  std::shared_ptr<detail::RefHandle> take(base::Rank from, const rpc::Loan& loan, const std::string& function,
                                          Outbox& out) REQUIRES(mutex_);
  Debug::Reference describe(const detail::RefId& id, base::Rank owner, std::string origin) const;
  std::shared_ptr<detail::RefHandle> handle_of_own(const detail::RefId& id) REQUIRES(mutex_);
  void settle(const detail::RefId& id, std::shared_ptr<void> value, std::exception_ptr error);
  detail::RefId new_id() REQUIRES(mutex_);
  void free_if_unheld(const detail::RefId& id, std::vector<std::shared_ptr<void>>& garbage) REQUIRES(mutex_);
  void dispose(std::vector<std::shared_ptr<void>> garbage);
  void released(const detail::RefHandle& handle);
  void noted(const Holder& key, Outbox& out, Handles& let_go) REQUIRES(mutex_);

  const base::Rank self_;
  const uint64_t birth_;
  const Services services_;

  mutable base::Mutex mutex_;
  bool closed_ GUARDED_BY(mutex_) = false;
  uint64_t numbers_ GUARDED_BY(mutex_) = 0;
  std::map<detail::RefId, Owned> owned_ GUARDED_BY(mutex_);
  std::set<std::pair<detail::RefId, Holder>> early_drops_ GUARDED_BY(mutex_);
  std::map<detail::RefId, std::weak_ptr<detail::RefHandle>> borrowed_ GUARDED_BY(mutex_);
  std::map<uint64_t, Lent> lent_ GUARDED_BY(mutex_);
  std::map<Holder, Asked> asked_ GUARDED_BY(mutex_);  // by owner and hold
};

}  // namespace farad::ref
