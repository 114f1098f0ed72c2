#include "suites/recorder.h"

#include <algorithm>

namespace farad::test {

using What = Recorder::Heard::What;

void Recorder::on_message(net::Peer from, wire::Message&& message) {
  if (at_message) at_message(from, message);
  record({What::Message, from, std::move(message), {}});
}

void Recorder::on_lost(net::Peer peer, const base::Status& why) { record({What::Lost, peer, {}, why}); }

void Recorder::on_unsent(net::Peer to, const wire::Message& message, const base::Status& why) {
  record({What::Unsent, to, message, why});
}

void Recorder::record(Heard heard) {
  std::vector<std::shared_ptr<net::Waiter>> woken;
  {
    base::Lock lock(mutex_);
    messages_ += heard.what == What::Message;
    losses_ += heard.what == What::Lost;
    unsent_ += heard.what == What::Unsent;
    if (keep_messages || heard.what != What::Message) history_.push_back(std::move(heard));
    for (auto watch = watches_.begin(); watch != watches_.end();) {
      if (!watch->done(*this)) {
        ++watch;
        continue;
      }
      woken.push_back(watch->waiter);
      watch = watches_.erase(watch);
    }
  }
  for (auto& waiter : woken) waiter->complete();
}

bool Recorder::wait_until(net::Driver& driver, base::Runtime& runtime, std::function<bool(const Recorder&)> done) {
  auto waiter = driver.make_waiter();
  {
    base::Lock lock(mutex_);
    if (done(*this)) return true;
    watches_.push_back({std::move(done), waiter});
  }
  const bool came = driver.wait(*waiter, runtime.now() + std::chrono::seconds(30));
  base::Lock lock(mutex_);
  watches_.remove_if([&](const Watch& watch) { return watch.waiter == waiter; });
  return came;
}

std::vector<wire::Message> Recorder::messages_from(base::Rank rank) const {
  std::vector<wire::Message> messages;
  for (const auto& heard : history_) {
    if (heard.what == What::Message && heard.peer.rank == rank) messages.push_back(heard.message);
  }
  return messages;
}

size_t Recorder::losses_of(base::Rank rank) const {
  return static_cast<size_t>(std::count_if(history_.begin(), history_.end(), [&](const Heard& heard) {
    return heard.what == What::Lost && heard.peer.rank == rank;
  }));
}

Recorder::History Recorder::snapshot() const {
  base::Lock lock(mutex_);
  return history_;
}

}  // namespace farad::test
