// What travels between workers, what comes of it where it arrives, and what is lost on the way.

#include "explore/world.h"

namespace farad::autograd::explore {

bool World::can_arrive(const Envelope& envelope) const {
  if (envelope.kind == Envelope::Lost || envelope.kind == Envelope::Refused) return true;
  const auto seen = epochs_.find({envelope.to, envelope.from});
  return envelope.epoch <= (seen == epochs_.end() ? 0 : seen->second);  // else it hears of the break first
}

void World::post(Envelope envelope) {
  if (!at(envelope.to).alive) {
    // One that knows already tries to connect again, and fails again.
    if (at(envelope.from).lost.contains(envelope.to)) {
      network_.push_back({Envelope::Lost, envelope.to, envelope.from, 0, 0, {}});
    }
    return;
  }
  const auto both = std::minmax(envelope.from, envelope.to);
  if (refused_.erase(both) > 0) {
    if (envelope.kind == Envelope::Forward) dead_calls_.emplace(envelope.from, envelope.pair);
    network_.push_back({Envelope::Refused, envelope.to, envelope.from, 0, 0, {}});
    return;
  }
  connected_.insert(both);
  const auto seen_by = [&](int self, int other) {
    const auto seen = epochs_.find({self, other});
    return seen == epochs_.end() ? 0 : seen->second;
  };
  envelope.epoch = seen_by(envelope.from, envelope.to);
  if (envelope.epoch >= seen_by(envelope.to, envelope.from)) {
    network_.push_back(std::move(envelope));
  } else if (envelope.kind == Envelope::Forward) {
    dead_calls_.emplace(envelope.from, envelope.pair);  // Into a connection that is broken: its sender will hear so.
  }
}

void World::forward(int pair) {
  const auto& made = graph_->pairs[static_cast<size_t>(pair)];
  if (!at(made.receiver).alive && at(made.sender).lost.contains(made.receiver)) return;  // It fails at once.
  at(made.sender).sends.insert(pair);
  at(made.sender).peers.insert(made.receiver);
  if (!at(made.receiver).alive) {
    dead_calls_.emplace(made.sender, pair);
  } else {
    post({Envelope::Forward, made.sender, made.receiver, 0, pair, {}});
  }
}

void World::arrive(size_t index) {
  const Envelope envelope = std::move(network_[index]);
  network_.erase(network_.begin() + static_cast<ptrdiff_t>(index));
  Effects out;
  auto& to = at(envelope.to);
  switch (envelope.kind) {
    case Envelope::Message: {
      // What travels is bytes.
      std::vector<char> bytes;
      encode(envelope.message, bytes);
      PassMessage message;
      if (!decode(bytes.data(), bytes.size(), message).ok()) return accuse("a message that cannot be decoded");
      message.cargo = envelope.message.cargo;
      to.passes.on_message(rank(envelope.from), std::move(message), out);
      break;
    }
    case Envelope::Forward:
      to.recvs.insert(envelope.pair);
      to.peers.insert(envelope.from);
      to.passes.late_recv(graph_->id_of(envelope.pair), rank(envelope.from),
                          graph_->pairs[static_cast<size_t>(envelope.pair)].gradient, out,
                          [&](PassId pass) { return !brought(envelope.pair, pass); });
      break;
    case Envelope::Lost:
      return lose(envelope.to, envelope.from);
    case Envelope::Refused:
      return refuse(envelope.to, envelope.from);
  }
  apply(envelope.to, std::move(out));
}

void World::lose(int worker, int lost_one) {
  auto& self = at(worker);
  const int epoch = at(lost_one).alive ? ++epochs_[{worker, lost_one}] : 0;
  Effects out;
  std::erase_if(network_, [&](const Envelope& e) {
    if (e.kind == Envelope::Lost || e.kind == Envelope::Refused) return false;
    return e.from == lost_one && e.to == worker && (!at(lost_one).alive || e.epoch < epoch);
  });
  std::vector<int> failed;  // calls that have not arrived
  std::erase_if(network_, [&](const Envelope& e) {
    if (e.kind != Envelope::Forward || e.from != worker || e.to != lost_one || e.epoch >= epoch) return false;
    failed.push_back(e.pair);
    return true;
  });
  for (const int pair : take_dead_calls(worker, lost_one)) failed.push_back(pair);
  fail_calls(worker, failed, out);
  forget(worker, lost_one);
  self.passes.on_lost(rank(lost_one), out);
  apply(worker, std::move(out));
}

/// There was nothing that could have ended, and the other knows nothing of it.
void World::refuse(int worker, int refused_by) {
  Effects out;
  fail_calls(worker, take_dead_calls(worker, refused_by), out);
  at(worker).passes.on_lost(rank(refused_by), out);
  apply(worker, std::move(out));
}

/// Those that have not arrived, and will not.
std::vector<int> World::take_dead_calls(int worker, int receiver) {
  std::vector<int> pairs;
  std::erase_if(dead_calls_, [&](const auto& call) {
    if (call.first != worker || graph_->pairs[static_cast<size_t>(call.second)].receiver != receiver) return false;
    pairs.push_back(call.second);
    return true;
  });
  return pairs;
}

void World::fail_calls(int worker, const std::vector<int>& pairs, Effects& out) {
  for (const int pair : pairs) {
    at(worker).sends.erase(pair);
    at(worker).passes.null_send(graph_->id_of(pair), out);
  }
}

/// What was had with that life of it is over: nobody there answers what was sent, or is answered by it.
void World::forget(int worker, int lost_one) {
  auto& self = at(worker);
  self.lost.insert(lost_one);
  self.peers.erase(lost_one);
  std::erase_if(self.sends, [&](int pair) { return graph_->pairs[static_cast<size_t>(pair)].receiver == lost_one; });
}

void World::kill(int worker) {
  had_loss_ = true;
  at(worker).alive = false;
  at(worker).scans.clear();
  for (const auto& envelope : network_) {
    if (envelope.kind == Envelope::Forward && envelope.to == worker) dead_calls_.emplace(envelope.from, envelope.pair);
  }
  std::erase_if(network_, [&](const Envelope& e) { return e.to == worker; });
  for (int other = 0; other < graph_->workers; ++other) {
    if (at(other).alive) network_.push_back({Envelope::Lost, worker, other, 0, 0, {}});
  }
}

}  // namespace farad::autograd::explore
