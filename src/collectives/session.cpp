#include "collectives/session.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace farad::collectives {
namespace {

std::vector<int> united(const std::vector<int>& some, const std::vector<int>& more) {
  std::vector<int> all;
  std::set_union(some.begin(), some.end(), more.begin(), more.end(), std::back_inserter(all));
  return all;
}

/// All members know the same of where each of them is.
Algorithms settled(Algorithms algorithms, const GroupId& id, const net::Fabric& fabric) {
  if (algorithms.large != Algorithms::Large::ByPlace) return algorithms;
  const auto members = fabric.members();
  std::vector<std::string> machines;
  for (const auto rank : id.ranks) machines.push_back(members[rank].machine);
  algorithms.large = ring_is_better(machines) ? Algorithms::Large::Ring : Algorithms::Large::Slices;
  return algorithms;
}

}  // namespace

Session::Session(GroupId id, int rank, std::chrono::milliseconds timeout, const Services& services,
                 const Algorithms& algorithms)
    : id_(std::move(id)),
      rank_(rank),
      timeout_(timeout),
      services_(services),
      algorithms_(settled(algorithms, id_, services.fabric)),
      meetings_(rank, [this](int member) { return name_of(member); }, to_text(id_)) {}

std::string Session::name_of(int member) const {
  const base::Rank rank(id_.ranks[member]);
  return "rank " + std::to_string(rank.value) + " (" + services_.name_of(rank) + ")";
}

int64_t Session::context() const {
  const auto alive = services_.life().lock();
  return alive ? services_.context() : 0;
}

void Session::record(const autograd::compat::Ptr<autograd::DeferredNode>& node) const {
  if (const auto alive = services_.life().lock()) services_.record(node);
}

Path Session::begin(uint64_t channel) {
  base::Lock lock(mutex_);
  return meetings_.begin(channel);
}

void Session::begin(const Path& exchange) {
  base::Lock lock(mutex_);
  meetings_.begin(exchange);
}

void Session::end(const Path& path) {
  base::Lock lock(mutex_);
  meetings_.end(path);
}

void Session::say_ended(const Path& exchange, const std::vector<int>& members, uint64_t since) {
  Letter letter;
  letter.kind = Letter::Kind::Ended;
  letter.group = id_;
  letter.path = exchange;
  letter.since = since;
  const auto alive = services_.life().lock();
  if (!alive) return;
  for (const int member : members) {
    // Whoever is lost by now does not wait for it.
    (void)services_.fabric.post(base::Rank(id_.ranks[member]), encode(letter)).status;
  }
}

void Session::say_failed(const Path& path, const std::vector<int>& members, const base::Status& why) {
  Effects effects;
  effects.tell.push_back({path, members, why});
  perform(effects);
}

void Session::skip_section(const base::Status& why) {
  Meetings::Gap gap;
  Effects effects;
  {
    base::Lock lock(mutex_);
    gap = meetings_.skip_section(why, effects);
  }
  const auto alive = services_.life().lock();
  if (!alive) return perform(effects);
  Letter letter;
  letter.kind = Letter::Kind::Skips;
  letter.group = id_;
  letter.path = {0, gap.first, 0};
  letter.since = gap.next;
  letter.code = why.code();
  letter.why = why.message();
  for (int member = 0; member < size(); ++member) {
    // Whoever is lost does not wait for it.
    if (member != rank_) (void)services_.fabric.post(base::Rank(id_.ranks[member]), encode(letter)).status;
  }
  perform(effects);
}

void Session::abandon(const Path& path) {
  std::function<void(Outcome)> let_go;  // After the lock: a graph may end with it.
  base::Lock lock(mutex_);
  meetings_.abandon(path);
  if (auto found = waiting_.extract(path)) let_go = std::move(found.mapped());
  lock.unlock();
}

base::Status Session::closed() const {
  return {base::Code::Closed, "[collectives] the worker of " + to_text(id_) + " is closed"};
}

std::map<int, std::string> Session::heard_elsewhere() const {
  std::map<int, std::string> heard;
  for (int member = 0; member < size(); ++member) {
    if (member != rank_) heard[member] = services_.heard_elsewhere(base::Rank(id_.ranks[member]), *this);
  }
  return heard;
}

std::string Session::heard_of(base::Rank rank) {
  const int member = member_of(rank);
  if (member < 0) return {};
  base::Lock lock(mutex_);
  return meetings_.heard_of(member);
}

std::string Session::who_is_missing(const Path& path) {
  const auto alive = services_.life().lock();
  if (!alive) return {};
  const auto elsewhere = heard_elsewhere();  // Before the lock: see Attendance::wait.
  base::Lock lock(mutex_);
  return meetings_.who_is_missing(path, "", elsewhere);
}

struct Session::Attendance::Awaited {
  std::shared_ptr<net::Waiter> waiter;
  Outcome outcome;
};

Session::Attendance::Attendance(std::shared_ptr<Session> session)
    : session_(std::move(session)), alive_(session_->services_.life().lock()), awaited_(std::make_shared<Awaited>()) {}

Session::Attendance& Session::Attendance::operator=(Attendance&& other) noexcept {
  leave();
  session_ = std::move(other.session_);
  alive_ = std::move(other.alive_);
  path_ = std::move(other.path_);
  deadline_ = other.deadline_;
  awaited_ = std::move(other.awaited_);
  return *this;
}

void Session::Attendance::leave() {
  if (std::exchange(awaited_, nullptr)) session_->abandon(path_);
}

Session::Outcome Session::Attendance::wait() {
  const auto awaited = std::exchange(awaited_, nullptr);
  if (!alive_) return std::move(awaited->outcome);
  auto& driver = session_->services_.fabric.driver();
  if (!driver.wait(*awaited->waiter, deadline_)) {
    // Asked before the lock: other groups have locks of their own, and may be asking us.
    const auto elsewhere = session_->heard_elsewhere();
    Effects effects;
    {
      base::Lock lock(session_->mutex_);
      session_->meetings_.expire(path_, base::to_text(session_->timeout_), elsewhere, effects);
    }
    session_->perform(effects);
    driver.wait(*awaited->waiter, base::never);  // If not by that, then by somebody who is about to complete it.
  }
  return std::move(awaited->outcome);
}

Session::Attendance Session::attend(Request request) {
  Attendance here(shared_from_this());
  const auto& awaited = here.awaited_;
  if (!here.alive_) {
    awaited->outcome.status = closed();
    return here;
  }
  auto& fabric = services_.fabric;
  awaited->waiter = fabric.driver().make_waiter();
  here.deadline_ = base::deadline_after(fabric.runtime().now(), timeout_);
  if (here.deadline_ != base::never) here.deadline_ += timeout_ * request.chain.round / 16;
  here.path_ = request.path;
  start(std::move(request), here.deadline_, [awaited](Outcome outcome) {
    awaited->outcome = std::move(outcome);
    awaited->waiter->complete();
  });
  return here;
}

Session::Outcome Session::meet(Request request) {
  const auto alive = services_.life().lock();
  if (!alive) return {closed(), {}};
  const net::Driver::Reservation reservation(services_.fabric.driver());
  return attend(std::move(request)).wait();
}

void Session::start(Request request, std::function<void(Outcome)> done) {
  const auto alive = services_.life().lock();
  if (!alive) return done({closed(), {}});
  start(std::move(request), base::never, std::move(done));
}

void Session::start(Request request, base::TimePoint deadline, std::function<void(Outcome)> done) {
  Effects effects;
  std::vector<int> unknown;
  {
    base::Lock lock(mutex_);
    waiting_[request.path] = std::move(done);
    auto others = united(united(request.to, request.from), request.chain.concerned);
    if (!request.other_name.empty()) meetings_.name(request.path, request.other_name);
    meetings_.open(request.path, request.from, std::move(others), request.signature, effects);
    for (const int member : request.from) {
      const bool hears = std::binary_search(request.to.begin(), request.to.end(), member);
      if (!hears && !met_.contains(member)) unknown.push_back(member);
    }
  }
  Letter letter;
  letter.group = id_;
  letter.path = std::move(request.path);
  letter.contribution.signature = std::move(request.signature);
  letter.contribution.records = request.records;
  letter.contribution.can_return = request.can_return;
  letter.contribution.context = services_.context();
  for (const int member : request.to) {
    letter.contribution.tensor = std::move(request.tensors[member]);
    letter.contribution.requires_grad = request.requires_grad[member];
    const auto sent = send(member, letter, deadline);
    if (sent.status.ok()) continue;
    base::Lock lock(mutex_);
    meetings_.not_sent(letter.path, member, sent.status, effects);
    for (auto& done : effects.done) {  // Who waits for nobody is done as soon as it is open.
      if (done.path != letter.path || !done.status.ok()) continue;
      done.status = sent.status;
      effects.tell.push_back({letter.path, request.to, sent.status});
    }
    break;
  }
  for (const int member : unknown) greet(member, letter.path, deadline, effects);
  perform(effects);
}

/// Of a member that nothing was sent to and nothing has come from, nobody would tell us that it is lost.
void Session::greet(int member, const Path& path, base::TimePoint deadline, Effects& effects) {
  Letter letter;
  letter.kind = Letter::Kind::Waits;
  letter.group = id_;
  letter.path = path;
  const auto sent = send(member, letter, deadline);
  if (sent.status.ok()) return;
  base::Lock lock(mutex_);
  meetings_.not_sent(path, member, sent.status, effects);
}

net::Sent Session::send(int member, const Letter& letter, base::TimePoint deadline) {
  const base::Rank to(id_.ranks[member]);
  auto& fabric = services_.fabric;
  net::Sent sent;
  try {
    if (fabric.driver().driving_here()) {
      sent = fabric.post(to, encode(letter));
    } else {
      sent.incarnation = fabric.send(to, encode(letter), deadline);
    }
  } catch (...) {
    sent.status = base::status_of(std::current_exception());
  }
  if (sent.status.ok()) met({to, sent.incarnation});
  return sent;
}

void Session::met(net::Peer peer) {
  Effects effects;
  {
    base::Lock lock(mutex_);
    note_met(peer, effects);
  }
  perform(effects);
}

/// A message went to that life or came from it. If that was lost before we knew, nobody else will tell us.
void Session::note_met(net::Peer peer, Effects& effects) {
  const int member = member_of(peer.rank);
  auto& latest = met_[member];
  latest = std::max(latest, peer.incarnation);
  if (const auto lost = lost_.find(member); lost != lost_.end() && lost->second >= latest) {
    meetings_.lost(member, {base::Code::PeerLost, "its connection broke"}, effects);
  }
}

int Session::member_of(base::Rank rank) const {
  const auto found = std::find(id_.ranks.begin(), id_.ranks.end(), rank.value);
  return found == id_.ranks.end() ? -1 : static_cast<int>(found - id_.ranks.begin());
}

void Session::on_letter(net::Peer from, Letter&& letter) {
  const int member = member_of(from.rank);
  if (member < 0) return;  // It says that it is a member, and by its own list it is not.
  Effects effects;
  {
    base::Lock lock(mutex_);
    note_met(from, effects);
    switch (letter.kind) {
      case Letter::Kind::Contribution:
        meetings_.came(letter.path, member, std::move(letter.contribution), effects);
        break;
      case Letter::Kind::Failed:
        meetings_.failed(letter.path, member, {letter.code, letter.why}, effects);
        break;
      case Letter::Kind::Ended:
        meetings_.ended(letter.path, member, letter.since, effects);
        break;
      case Letter::Kind::Waits:
        break;
      case Letter::Kind::Skips:
        meetings_.skipped(member, {letter.path[1], letter.since}, {letter.code, letter.why}, effects);
        break;
    }
  }
  perform(effects);
}

void Session::on_lost(net::Peer peer, const base::Status& why) {
  const int member = member_of(peer.rank);
  if (member < 0) return;
  Effects effects;
  {
    base::Lock lock(mutex_);
    auto& latest = lost_[member];
    latest = std::max(latest, peer.incarnation);
    // A life that ended before the group had to do with that member is not its concern.
    const auto met = met_.find(member);
    if (met == met_.end() || met->second > peer.incarnation) return;
    meetings_.lost(member, why, effects);
  }
  perform(effects);
}

void Session::close(const base::Status& why) {
  Effects effects;
  {
    base::Lock lock(mutex_);
    meetings_.close(why, effects);
  }
  perform(effects);
}

void Session::perform(Effects& effects) {
  const auto alive = services_.life().lock();
  for (auto& tell : effects.tell) {
    if (!alive) break;
    Letter letter;
    letter.kind = Letter::Kind::Failed;
    letter.group = id_;
    letter.path = std::move(tell.path);
    letter.code = tell.why.code();
    letter.why = tell.why.message();
    for (const int member : tell.members) {
      // Whoever is lost needs not hear it.
      (void)services_.fabric.post(base::Rank(id_.ranks[member]), encode(letter)).status;
    }
  }
  for (auto& done : effects.done) {
    std::function<void(Outcome)> waiting;
    {
      base::Lock lock(mutex_);
      if (auto found = waiting_.extract(done.path)) waiting = std::move(found.mapped());
    }
    if (waiting) waiting({std::move(done.status), std::move(done.came)});
  }
  effects = {};
}

}  // namespace farad::collectives
