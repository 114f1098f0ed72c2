#pragma once

#include <farad/debug.h>
#include <farad/detail/reference.h>

#include <atomic>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "net/transport.h"
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
  friend class ref::Table;
  // The table's, under its lock.
  base::Incarnation life{};  // of the owner, which knows our share; 0 until it was told
  bool wanted = false;       // The owner has asked whether its making is still to come.

  mutable base::Mutex mutex;
  std::exception_ptr why GUARDED_BY(mutex);
};

}  // namespace farad::detail

namespace farad::ref {

/// The references of one worker: values that live here, and shares of values that live elsewhere.
///
/// The owner knows every worker's *holds* on a value and frees it when there is none, and no handle of its own. A hold
/// is a number, so that its end can be told from that of another one whatever overtakes what.
///
/// | event | what is done |
/// |---|---|
/// | `remote` | the maker picks the id; the call that makes the value tells the owner, which notes the maker's hold |
/// | the owner lends | it notes a hold for the receiver and sends it along: nothing more is needed |
/// | another lends | it keeps its own share; the receiver asks the owner for a hold (Hold), the owner notes it (Noted),
/// the receiver tells the lender (Returned), which may let go now |
/// | a share ends | its worker tells the owner (Drop), once it knows that the owner knows of the share |
/// | the owner hears of a value that it has not made | it asks the maker (Ask), which answers (Unmade) unless the call
/// is still to come: then there is no value, for the reason that the maker tells, or as it went with a lost lender |
/// | a life of a worker is lost | its holds are dropped, what was lent to it is let go of, shares of its values are
/// marked lost |
///
/// So the function that was lent a reference runs at once, and the value cannot go away in between: somebody always
/// holds it. A hold belongs to one life of its holder (and of its owner, there): news of a loss may come after first
/// messages went to the next life, and must not take holds with it that were made in that one.
class Table final : public rpc::References, public std::enable_shared_from_this<Table> {
 public:
  struct Services {
    std::function<net::Sent(base::Rank to, wire::Message message)> post;  ///< never waits
    std::function<void(std::function<void()> task)> later;                ///< where uses go on
    std::function<void(std::function<void()> task)> discard;              ///< where values are destroyed
    std::function<std::string(base::Rank)> name_of;
    std::function<uint64_t(base::Rank)> birth_of;  ///< of that member of the group now; 0 if there is none
    std::weak_ptr<detail::WorkerCore> core;        ///< only to be passed on
  };

  Table(base::Rank self, uint64_t birth, Services services);

  const std::weak_ptr<detail::WorkerCore>& core() const { return services_.core; }
  std::string name_of(base::Rank rank) const { return services_.name_of(rank); }

  std::shared_ptr<detail::RefHandle> own(std::shared_ptr<void> value, std::string origin);
  /// For a value that `owner` is about to be asked to make.
  std::shared_ptr<detail::RefHandle> begin(base::Rank owner, std::string_view function);
  /// The call that makes it has ended, as far as we are concerned.
  void confirm(const std::shared_ptr<detail::RefHandle>& handle);

  /// Whether the value was made here, or its making failed, or neither will be told any more.
  bool is_ready(const detail::RefId& id) const;

  base::Status may_lend(const detail::References& references) const override;
  std::vector<rpc::Loan> lend(base::Rank to, const detail::References& references) override;
  void sent(net::Peer to, const std::vector<rpc::Loan>& loans, const std::optional<detail::RefId>& makes) override;
  void take_back(net::Peer to, const std::vector<rpc::Loan>& loans) override;
  detail::References receive(net::Peer from, const std::vector<rpc::Loan>& loans, const std::string& function) override;
  void expect(net::Peer maker, const detail::RefId& id, const std::string& function) override;
  void keep(const detail::RefId& id, std::shared_ptr<void> value) override;
  void fail(const detail::RefId& id, std::exception_ptr error) override;
  void when_ready(const detail::RefId& id, Then then) override;
  void on_message(net::Peer from, const wire::Message& message) override;
  void on_lost(net::Peer peer) override;
  /// Nothing is sent any more, and nothing made: whoever waits for a value hears that.
  void close();

  struct Stats {
    size_t owned = 0;
    size_t borrowed = 0;
    size_t lent = 0;
    size_t unsettled = 0;  ///< holds asked for and not noted
  };
  Stats stats() const;
  /// Adds what is referred to.
  void describe(Debug& debug) const;
  /// What this worker still holds by handles of its own.
  std::vector<Debug::Reference> handles() const;

 private:
  friend class detail::RefHandle;

  enum class What : uint8_t { Hold, Noted, Returned, Drop, Ask, Unmade };
  struct Note {
    What what;
    detail::RefId id;
    uint64_t number = 0;               // Hold, Noted, Drop: the hold. Returned: the lender's number.
    std::exception_ptr why = nullptr;  // Unmade: what the maker knows of it.
  };
  /// A life of a worker, 0 while a message is on its way to one that we do not know yet, and the number of the hold.
  using Holder = std::pair<net::Peer, uint64_t>;
  using Asking = std::pair<base::Rank, uint64_t>;  // the owner, and the number of the hold

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
    net::Peer to;
  };
  struct Asked {  // for a hold that the owner has not noted yet
    std::weak_ptr<detail::RefHandle> handle;
    std::vector<std::pair<base::Rank, uint64_t>> lenders;  // whom to tell
    base::Incarnation life{};                              // of the owner; 0 until the question went
    bool dropped = false;                                  // Our share has ended meanwhile.
    detail::RefId id;
  };

  /// What is to be done once the lock is let go of: foreign code, and what takes the lock itself.
  struct Afterwards {
    std::vector<std::pair<base::Rank, Note>> notes;
    std::vector<std::shared_ptr<void>> garbage;
    std::vector<std::shared_ptr<detail::RefHandle>> handles;  // Each may turn out to be the last.
    std::vector<std::function<void()>> uses;
  };
  void finish(Afterwards after) EXCLUDES(mutex_);
  void post(base::Rank to, const Note& note) EXCLUDES(mutex_);

  // Values that live here.
  detail::RefId new_id() REQUIRES(mutex_);
  Owned& find_or_ask(const detail::RefId& id, Afterwards& after) REQUIRES(mutex_);
  std::shared_ptr<detail::RefHandle> handle_of_own(const detail::RefId& id) REQUIRES(mutex_);
  void hold(const detail::RefId& id, const Holder& holder, Afterwards& after) REQUIRES(mutex_);
  void drop(const detail::RefId& id, net::Peer from, uint64_t number, Afterwards& after) REQUIRES(mutex_);
  void settle(const detail::RefId& id, std::shared_ptr<void> value, std::exception_ptr error, Afterwards& after)
      REQUIRES(mutex_);
  void is_gone(const detail::RefId& id, Afterwards& after, std::exception_ptr why = nullptr) REQUIRES(mutex_);
  std::exception_ptr gone() const;
  std::exception_ptr unmade() const;
  bool is_of_our_group(const Table& other) const;
  void free_if_unheld(const detail::RefId& id, Afterwards& after) REQUIRES(mutex_);
  void lose_holder(net::Peer peer, Afterwards& after) REQUIRES(mutex_);

  // Shares of values that live elsewhere.
  std::shared_ptr<detail::RefHandle> take(net::Peer from, const rpc::Loan& loan, const std::string& function,
                                          Afterwards& after) REQUIRES(mutex_);
  void asked(const Asking& key, const net::Sent& sent) EXCLUDES(mutex_);
  void noted(const Asking& key, Afterwards& after) REQUIRES(mutex_);
  void was_asked(net::Peer owner, const detail::RefId& id, Afterwards& after) REQUIRES(mutex_);
  void lose_owner(net::Peer peer, Afterwards& after) REQUIRES(mutex_);
  void released(const detail::RefHandle& handle);

  Debug::Reference describe(const detail::RefId& id, base::Rank owner, std::string origin) const;

  const base::Rank self_;
  const uint64_t birth_;
  const Services services_;

  mutable base::Mutex mutex_;
  bool closed_ GUARDED_BY(mutex_) = false;
  uint64_t numbers_ GUARDED_BY(mutex_) = 0;
  std::set<net::Peer> lost_ GUARDED_BY(mutex_);  // Lives that ended; few, since peers seldom do.
  std::map<detail::RefId, Owned> owned_ GUARDED_BY(mutex_);
  std::map<detail::RefId, std::weak_ptr<detail::RefHandle>> borrowed_ GUARDED_BY(mutex_);
  std::map<uint64_t, Lent> lent_ GUARDED_BY(mutex_);
  std::map<Asking, Asked> asked_ GUARDED_BY(mutex_);
};

/// The number of a reference tells who made it.
inline constexpr int counter_bits = 48;
inline base::Rank maker_of(const detail::RefId& id) {
  return base::Rank(static_cast<uint16_t>(id.number >> counter_bits));
}
/// The hold that the maker of a reference has on it from the start. Those that an owner makes are even and those that
/// others ask for odd; this one is neither's.
inline uint64_t makers_hold(const detail::RefId& id) { return id.number | uint64_t{1} << 63; }

}  // namespace farad::ref
