#include "net/fabric.h"

#include <c10/util/Exception.h>
#include <torch/version.h>

#include <farad/error.h>
#include <farad/version.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/log.h"
#include "net/local/hub.h"
#include "net/local/self_box.h"
#include "net/local/transport.h"
#include "net/machine.h"
#include "net/rendezvous/codec.h"
#include "net/rendezvous/place.h"
#include "net/rendezvous/rendezvous.h"
#include "net/router.h"
#include "net/shm/shm_transport.h"
#include "net/sim/bell.h"
#include "net/sim/transport.h"
#include "net/sim/world.h"
#include "net/system_bell.h"
#include "net/tcp/tcp_transport.h"
#include "wire/buffer_pool.h"

namespace farad::net {
namespace {

/// The one kind of message that is the fabric's own: a restarted member tells the others where it is now.
constexpr uint8_t introduction = 254;
static_assert(introduction != tcp::heartbeat_kind);

/// For how long a worker that cannot be a member tries to tell the others.
constexpr auto time_to_be_heard = std::chrono::seconds(5);

void check(FabricOptions& options) {
  auto fail = [](const std::string& why) { throw Error("[net] join: " + why); };
  if (options.rank < 0 || options.size < 1) {
    fail("rank and size of the group are not known: set RANK and WORLD_SIZE, or start the program with `farad run`");
  }
  // The others must not take it for another one, nor a simulation for one of its workers.
  if (options.rank >= UINT16_MAX || (options.world && options.rank >= options.size)) {
    fail("rank " + std::to_string(options.rank) + " is out of range in a group of " + std::to_string(options.size));
  }
  if (options.size > UINT16_MAX) fail("a group has at most " + std::to_string(UINT16_MAX) + " members");
  const auto& t = options.transport;
  if (!t.empty() && t != "local" && t != "shm" && t != "tcp" && t != "sim") {
    fail("there is no transport \"" + t + "\"; choose local, shm, tcp or sim, or leave it empty");
  }
  if ((t == "sim") != (options.world != nullptr))
    fail("transport \"sim\" needs a simulated world, and no other has one");
  // What is more than the limit goes when nothing else waits; below a limit of nothing there would never be room.
  options.queue_bytes = std::max<size_t>(options.queue_bytes, 1);
  if (options.name.empty()) options.name = "worker" + std::to_string(options.rank);
}

Member describe(const FabricOptions& options) {
  Member self;
  self.rank = base::Rank(static_cast<uint16_t>(options.rank));
  self.name = options.name;
  // In a simulation nothing may depend on the machine it runs on.
  self.machine = options.world ? "simulated" : machine_identity();
  self.birth = options.world ? options.world->random().next() | 1 : new_birth();
  self.version = "farad " FARAD_VERSION ", torch " TORCH_VERSION;
  return self;
}

class FabricImpl final : public Fabric, private Sink {
 public:
  FabricImpl(FabricOptions options, Sink& sink)
      : options_(std::move(options)),
        sink_(sink),
        log_(options_.name, options_.log_level),
        self_(describe(options_)),
        runtime_(options_.world ? options_.world->runtime() : base::Runtime::real()),
        bell_(make_bell()),
        driver_(runtime_, *bell_, [this] { return poll(); }) {
    add_transports();
  }

  ~FabricImpl() override { close(); }

  void meet();
  /// Instead: tells those who meet that this worker's rank is none of the group's, and throws.
  [[noreturn]] void refuse_own_rank();

  void start() override { driver_.start(); }
  const Member& self() const override { return self_; }
  int size() const override { return options_.size; }
  std::vector<Member> members() const override { return router_.members(); }
  base::Incarnation send(base::Rank to, wire::Message message, base::TimePoint deadline) override;
  Sent post(base::Rank to, wire::Message message) override;
  Driver& driver() override { return driver_; }
  base::Runtime& runtime() override { return runtime_; }
  std::string_view transport_to(base::Rank peer) const override { return router_.transport_to(peer); }
  void close() override;

 private:
  std::unique_ptr<Bell> make_bell();
  void add_transports();
  Sink& next_sink();
  void install(std::unique_ptr<Transport> transport);
  Transport* choose(const Member& member) const;
  void introduce_ourselves();

  bool poll();

  void on_message(Peer from, wire::Message&& message) override;
  void on_lost(Peer peer, const base::Status& why) override { sink_.on_lost(peer, why); }
  void on_unsent(Peer to, const wire::Message& message, const base::Status& why) override {
    sink_.on_unsent(to, message, why);
  }

  const FabricOptions options_;
  Sink& sink_;
  const base::Log log_;
  Member self_;  // Constant once we have met.
  base::Runtime& runtime_;
  std::unique_ptr<Rendezvous> rendezvous_;

  SystemBell* system_bell_ = nullptr;  // bell_, unless we are in a simulation.
  const std::unique_ptr<Bell> bell_;
  std::vector<std::unique_ptr<Sink>> sinks_;  // What router_'s transports talk to: they must go first.
  Router router_;
  std::map<std::string, Transport*> by_name_;
  Driver driver_;

  std::atomic<bool> closed_{false};
  base::Mutex mutex_;
  std::vector<std::shared_ptr<Waiter>> room_waiters_ GUARDED_BY(mutex_);
  std::atomic<bool> somebody_waits_for_room_{false};
};

std::unique_ptr<Bell> FabricImpl::make_bell() {
  if (options_.world) return std::make_unique<sim::SimBell>(options_.world->scheduler(), options_.name);
  auto bell = std::make_unique<SystemBell>(options_.spin);
  system_bell_ = bell.get();
  return bell;
}

Sink& FabricImpl::next_sink() {
  sinks_.push_back(router_.sink_for(sinks_.size(), *this));
  return *sinks_.back();
}

void FabricImpl::install(std::unique_ptr<Transport> transport) {
  by_name_[std::string(transport->name())] = transport.get();
  router_.add(std::move(transport));
}

void FabricImpl::add_transports() {
  const base::Rank self = self_.rank;
  install(std::make_unique<SelfBox>(self, *bell_, next_sink(), options_.limits, options_.queue_bytes));
  auto wanted = [&](std::string_view name) { return options_.transport.empty() || options_.transport == name; };
  if (options_.world) {
    install(std::make_unique<sim::SimTransport>(self, *options_.world, *bell_, next_sink(), options_.limits,
                                                options_.queue_bytes, options_.lost_after));
    return;
  }
  auto pool = wire::BufferPool::make(options_.pool_bytes);
  if (wanted("local")) {
    install(std::make_unique<LocalTransport>(self, LocalHub::of_process(), *bell_, next_sink(), options_.limits,
                                             options_.queue_bytes));
  }
  if (wanted("shm")) {
    ShmOptions shm{self, options_.size,       self_.birth,          options_.secret,     options_.limits,
                   pool, options_.pool_bytes, options_.queue_bytes, options_.lost_after, log_};
    install(std::make_unique<ShmTransport>(std::move(shm), *system_bell_, next_sink()));
  }
  if (wanted("tcp")) {
    TcpOptions tcp;
    tcp.self = self;
    tcp.size = options_.size;
    tcp.birth = self_.birth;
    tcp.secret = options_.secret;
    tcp.limits = options_.limits;
    tcp.lost_after = options_.lost_after;
    tcp.queue_bytes = options_.queue_bytes;
    tcp.pool = pool;
    tcp.bind_host = options_.bind;
    Place place;
    if (parse_place(options_.rendezvous, place).ok() && place.kind == Place::Kind::Tcp) tcp.meeting_host = place.where;
    tcp.log = log_;
    install(std::make_unique<TcpTransport>(std::move(tcp), *system_bell_, *bell_, next_sink(), runtime_));
  }
}

/// The nearest way: within the process, within the machine, or by the network.
Transport* FabricImpl::choose(const Member& member) const {
  auto way = [&](const char* name) -> Transport* {
    const auto found = by_name_.find(name);
    return found != by_name_.end() && member.addresses.contains(name) ? found->second : nullptr;
  };
  if (member.rank == self_.rank) return by_name_.at("self");
  if (auto* sim = way("sim")) return sim;
  if (auto* local = way("local"); local && LocalHub::of_process()->reaches(member.addresses.at("local"))) return local;
  if (auto* shm = way("shm"); shm && member.machine == self_.machine) return shm;
  return way("tcp");
}

void FabricImpl::meet() {
  base::Rank rank(static_cast<uint16_t>(options_.rank));
  open_rendezvous(options_.rendezvous, rank, runtime_, rendezvous_).raise();
  self_.addresses = router_.addresses();
  const auto deadline = base::deadline_after(runtime_.now(), options_.join_timeout);
  std::vector<Member> members;
  bool rejoined = false;
  rendezvous_->join({self_, options_.size, deadline, options_.secret}, members, rejoined).raise();
  if (members.size() != static_cast<size_t>(options_.size)) {
    throw Error("[net] join: a meeting of " + std::to_string(members.size()) + " members for a group of " +
                std::to_string(options_.size));
  }
  router_.set_members(std::move(members), [this](const Member& member) { return choose(member); }).raise();
  if (rejoined) introduce_ourselves();
}

void FabricImpl::refuse_own_rank() {
  const base::Rank rank(static_cast<uint16_t>(options_.rank));
  open_rendezvous(options_.rendezvous, rank, runtime_, rendezvous_).raise();
  // The others may not have started yet; but this worker's error must not wait for those who never will.
  const bool endless = options_.join_timeout.count() == 0;
  const std::chrono::milliseconds patience =
      endless ? time_to_be_heard : std::min<std::chrono::milliseconds>(options_.join_timeout, time_to_be_heard);
  std::vector<Member> members;
  bool rejoined = false;
  const auto status =
      rendezvous_->join({self_, options_.size, runtime_.now() + patience, options_.secret}, members, rejoined);
  rendezvous_->close();
  if (status.code() == base::Code::Invalid) status.raise();
  throw Error("[net] join: rank " + std::to_string(options_.rank) + " is out of range: a group of " +
              std::to_string(options_.size) + " has ranks 0 to " + std::to_string(options_.size - 1));
}

void FabricImpl::introduce_ourselves() {
  meeting::Note note;
  note.member = self_;
  note.size = options_.size;
  const std::string body = meeting::encode(note);
  for (const auto& member : router_.members()) {
    if (member.rank == self_.rank) continue;
    wire::Message message{introduction, 0, wire::Bytes(body.begin(), body.end()), {}};
    // A member that is gone learns nothing, which is as it should be.
    (void)router_.send(member.rank, message, true).status;
  }
}

void FabricImpl::on_message(Peer from, wire::Message&& message) {
  if (message.kind != introduction) return sink_.on_message(from, std::move(message));
  meeting::Note note;
  auto status = meeting::decode({message.body.data(), message.body.size()}, note);
  if (status.ok() && note.member.rank != from.rank) status = {base::Code::Protocol, "it spoke for another"};
  if (status.ok()) status = router_.update(note.member);
  if (!status.ok()) log_.warning("[net] a bad introduction from rank ", from.rank, ": ", status.message());
}

bool FabricImpl::poll() {
  const bool did = router_.poll();
  // Room comes only by something being done; otherwise they would go round without ever sleeping.
  if (did && somebody_waits_for_room_.exchange(false)) {
    std::vector<std::shared_ptr<Waiter>> waiters;
    {
      base::Lock lock(mutex_);
      waiters.swap(room_waiters_);
    }
    for (auto& waiter : waiters) waiter->complete();  // They try again, and come back if there is none.
  }
  return did;
}

base::Incarnation FabricImpl::send(base::Rank to, wire::Message message, base::TimePoint deadline) {
  TORCH_CHECK(message.kind < introduction, "[net] message kinds 254 and 255 are the fabric's own");
  TORCH_CHECK(!driver_.driving_here(),
              "[net] send waits, so it must not be called where messages are handled: use post");
  std::shared_ptr<Waiter> waiter;
  while (true) {
    if (closed_.load()) throw Closed("[net] send to rank " + std::to_string(to.value) + ": this worker is closed");
    auto sent = router_.send(to, message, false);
    if (sent.status.code() != base::Code::Busy) {
      sent.status.raise();
      return sent.incarnation;
    }
    if (!waiter) {
      // Room may have come between the answer and our asking to be told, so ask first and try once more.
      waiter = driver_.make_waiter();
      base::Lock lock(mutex_);
      room_waiters_.push_back(waiter);
      lock.unlock();
      somebody_waits_for_room_.store(true);
      continue;
    }
    if (!driver_.wait(*waiter, deadline)) {
      throw Timeout("[net] send to " + router_.name_of(to) + ": no room in its queue (" + sent.status.message() + ")");
    }
    waiter.reset();
  }
}

Sent FabricImpl::post(base::Rank to, wire::Message message) {
  TORCH_CHECK(message.kind < introduction, "[net] message kinds 254 and 255 are the fabric's own");
  if (closed_.load()) return {{base::Code::Closed, "[net] this worker is closed"}, {}};
  return router_.send(to, message, true);
}

void FabricImpl::close() {
  if (closed_.exchange(true)) return;
  driver_.stop();
  router_.close();
  if (rendezvous_) rendezvous_->close();
  std::vector<std::shared_ptr<Waiter>> waiters;
  {
    base::Lock lock(mutex_);
    waiters.swap(room_waiters_);
  }
  for (auto& waiter : waiters) waiter->complete();
}

}  // namespace

std::unique_ptr<Fabric> Fabric::join(FabricOptions options, Sink& sink) {
  check(options);
  const bool is_one_of_them = options.rank < options.size;
  auto fabric = std::make_unique<FabricImpl>(std::move(options), sink);
  if (!is_one_of_them) fabric->refuse_own_rank();
  fabric->meet();
  return fabric;
}

}  // namespace farad::net
