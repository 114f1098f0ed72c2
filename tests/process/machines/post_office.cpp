#include "post_office.h"

#include <utility>

namespace farad::test {

PostOffice::PostOffice() {
  const auto options = WorkerOptions::from_environment();
  fabric_ = net::Fabric::join(net::FabricOptions::from(options, base::Environment::process()), *this);
  all_done_ = fabric_->driver().make_waiter();
  fabric_->start();
}

PostOffice::~PostOffice() { fabric_->close(); }

wire::Message PostOffice::ask(base::Rank rank, wire::Message letter) {
  letter.kind = static_cast<uint8_t>(Letter::Question);
  auto waiter = fabric_->driver().make_waiter();
  {
    base::Lock lock(mutex_);
    failure_.raise();
    asking_ = waiter;
  }
  net::Driver::Reservation reservation(fabric_->driver());
  fabric_->send(rank, std::move(letter));
  fabric_->driver().wait(*waiter, base::never);
  base::Lock lock(mutex_);
  asking_ = nullptr;
  failure_.raise();
  return std::exchange(answer_, {});
}

void PostOffice::finish() {
  for (int rank = 0; rank < fabric_->size(); ++rank) {
    wire::Message letter;
    letter.kind = static_cast<uint8_t>(Letter::GoodBye);
    fabric_->send(base::Rank(static_cast<uint16_t>(rank)), std::move(letter));
  }
  fabric_->driver().wait(*all_done_, base::never);
  base::Lock lock(mutex_);
  if (static_cast<int>(done_.size()) < fabric_->size()) failure_.raise();
}

void PostOffice::on_message(net::Peer from, wire::Message&& message) {
  switch (static_cast<Letter>(message.kind)) {
    case Letter::Question:
      message.kind = static_cast<uint8_t>(Letter::Answer);
      if (auto sent = fabric_->post(from.rank, std::move(message)); !sent.status.ok()) fail(sent.status);
      return;
    case Letter::Answer: {
      base::Lock lock(mutex_);
      answer_ = std::move(message);
      if (asking_) asking_->complete();
      return;
    }
    case Letter::GoodBye: {
      base::Lock lock(mutex_);
      done_.insert(from.rank);
      if (static_cast<int>(done_.size()) == fabric_->size()) all_done_->complete();
      return;
    }
  }
}

void PostOffice::on_lost(net::Peer peer, const base::Status& why) {
  base::Lock lock(mutex_);
  // It had heard everybody's good-bye, though we perhaps have not yet.
  if (done_.contains(peer.rank)) return;
  lock.unlock();
  fail(why);
}

void PostOffice::on_unsent(net::Peer, const wire::Message&, const base::Status& why) { fail(why); }

void PostOffice::fail(const base::Status& why) {
  base::Lock lock(mutex_);
  if (failure_.ok()) failure_ = why;
  if (asking_) asking_->complete();
  all_done_->complete();
}

}  // namespace farad::test
