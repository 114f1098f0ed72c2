#include "optim/ledger.h"

#include <farad/error.h>

#include <exception>
#include <utility>

#include "optim/or_error.h"

namespace farad::optim {
namespace {

/// Others ask about a step at most until they have noticed a loss; until then this many further ones do no harm.
constexpr size_t remembered = 4096;

Future<Standing> now(Standing standing) {
  const Promise<Standing> promise;
  promise.set_value(standing);
  return promise.future();
}

}  // namespace

Ledger::Ledger(Services services) : services_(std::move(services)) {}

bool Ledger::open(StepId step, Entry entry) {
  base::Lock lock(mutex_);
  if (closed_ || past_.contains(step)) return false;
  services_.begin_work();
  running_[step].entry = std::move(entry);
  return true;
}

bool Ledger::prepared(StepId step, bool success) {
  {
    base::Lock lock(mutex_);
    const auto found = running_.find(step);
    if (found == running_.end()) return false;  // The worker has ended.
    auto& transaction = found->second.transaction;
    if (!success) transaction.refuse();
    transaction.prepare();
    if (transaction.standing() == Standing::Open) return true;
  }
  finish(step);
  return false;
}

Future<Standing> Ledger::commit(StepId step) {
  return change(step, [](Transaction& transaction) { transaction.commit(); });
}

Future<Standing> Ledger::abort(StepId step) {
  return change(step, [](Transaction& transaction) { transaction.abort(); });
}

Standing Ledger::asked(StepId step, int leader) {
  (void)change(step, [leader](Transaction& transaction) { transaction.freeze(leader); });
  begin_to_settle(step);
  base::Lock lock(mutex_);
  if (const auto running = running_.find(step); running != running_.end())
    return running->second.transaction.standing();
  const auto past = past_.find(step);
  return past == past_.end() ? Standing::Aborted : past->second;
}

Future<Standing> Ledger::awaited(StepId step) {
  auto ended = change(step, [](Transaction& transaction) { transaction.freeze(0); });  // to whichever leader
  begin_to_settle(step);
  return ended;
}

Future<Standing> Ledger::change(StepId step, const Change& happen) {
  base::Lock lock(mutex_);
  if (const auto past = past_.find(step); past != past_.end()) return now(past->second);
  const auto found = running_.find(step);
  if (found == running_.end()) {
    // Nobody can have had our vote, and from now on nobody gets it.
    remember(step, Standing::Aborted);
    return now(Standing::Aborted);
  }
  auto& running = found->second;
  const bool was_open = running.transaction.standing() == Standing::Open;
  happen(running.transaction);
  const auto ended = running.ended.future();
  if (!was_open || running.transaction.standing() == Standing::Open) return ended;
  // Whoever prepares it ends it: the values are in use until then.
  const bool prepared = running.transaction.is_prepared();
  const auto interrupt = prepared ? nullptr : running.entry.interrupt;
  lock.unlock();
  if (prepared) finish(step);
  if (interrupt) interrupt();
  return ended;
}

void Ledger::finish(StepId step) {
  base::Lock lock(mutex_);
  const auto found = running_.find(step);
  if (found == running_.end()) return;  // The worker has ended.
  auto& running = found->second;
  const auto standing = running.transaction.standing();
  const auto take = std::move(running.entry.finish);
  const auto ended = running.ended;
  lock.unlock();
  std::exception_ptr error;
  try {
    take(standing == Standing::Committed);
  } catch (...) {
    error = std::current_exception();
  }
  lock.relock();
  running_.erase(step);
  remember(step, standing);
  lock.unlock();
  error ? ended.set_exception(error) : ended.set_value(standing);
  services_.end_work();
}

void Ledger::remember(StepId step, Standing outcome) {
  if (!past_.emplace(step, outcome).second) return;
  past_in_order_.push_back(step);
  if (past_in_order_.size() <= remembered) return;
  past_.erase(past_in_order_.front());
  past_in_order_.pop_front();
}

void Ledger::close() {
  std::map<StepId, Running> dropped;  // Not under the lock: their ends tell others.
  base::Lock lock(mutex_);
  closed_ = true;
  dropped.swap(running_);
  lock.unlock();
}

// --- Without the coordinator ---

void Ledger::on_lost(int rank) {
  std::vector<StepId> orphans;
  {
    base::Lock lock(mutex_);
    for (const auto& [step, running] : running_) {
      if (coordinator_of(step) == rank) orphans.push_back(step);
    }
  }
  for (const auto& step : orphans) {
    services_.later([this, step] { (void)awaited(step); });
  }
}

void Ledger::begin_to_settle(StepId step) {
  base::Lock lock(mutex_);
  const auto found = running_.find(step);
  if (found == running_.end() || found->second.transaction.standing() != Standing::Open) return;
  if (std::exchange(found->second.settling, true)) return;
  auto owners = found->second.entry.owners;
  lock.unlock();
  services_.later([this, step, owners = std::move(owners)] { settle(step, owners); });
}

void Ledger::settle(StepId step, const std::vector<int>& owners) {
  // Lower ranks lead. Each is either lost or tells what it has found out.
  for (const int owner : owners) {
    if (owner < services_.self && follow(step, owner)) return;
  }
  lead(step, owners);
  // Still open if one of a higher rank has asked us, as who took us for lost; then it is that one who knows.
  for (const int owner : owners) {
    if (owner > services_.self && (!is_open(step) || follow(step, owner))) return;
  }
}

bool Ledger::follow(StepId step, int leader) {
  try {
    const auto outcome = services_.await(leader, step).wait();
    (void)change(step, [&](Transaction& transaction) { transaction.learn(leader, outcome); });
  } catch (const Error&) {  // Lost, or as good as that.
  }
  return !is_open(step);
}

void Ledger::lead(StepId step, const std::vector<int>& owners) {
  std::vector<Future<Standing>> answers;
  for (const int owner : owners) {
    if (owner <= services_.self) continue;
    answers.push_back(or_error<Future<Standing>>([&] { return services_.ask(owner, step, services_.self); }));
  }
  auto outcome = Standing::Aborted;
  for (const auto& answer : answers) {
    try {
      if (answer.wait() == Standing::Committed) outcome = Standing::Committed;
    } catch (const Error&) {
    }
  }
  (void)change(step, [&](Transaction& transaction) { transaction.learn(services_.self, outcome); });
}

bool Ledger::is_open(StepId step) const {
  base::Lock lock(mutex_);
  const auto found = running_.find(step);
  return found != running_.end() && found->second.transaction.standing() == Standing::Open;
}

size_t Ledger::open_steps() const {
  base::Lock lock(mutex_);
  return running_.size();
}

}  // namespace farad::optim
