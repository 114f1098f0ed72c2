#include "autograd/pass/ballot.h"

#include <algorithm>

namespace farad::autograd {

void Ballot::name(base::Rank worker) {
  if (workers_.try_emplace(worker).second) ++waiting_;
}

void Ballot::done(base::Rank worker, const PassMessage& done) {
  name(worker);
  for (const auto peer : done.peers) name(peer);
  auto& entry = workers_[worker];
  if (entry.done) return;
  entry.done = true;
  entry.left_out = done.left_out;
  count(worker, done.channels, +1);
  --waiting_;
}

void Ballot::report(base::Rank worker, const PassMessage& report) {
  name(worker);
  auto& entry = workers_[worker];
  if (entry.done && report.number <= entry.number) return;  // overtaken by a newer one
  if (!entry.done) {
    entry.done = true;
    --waiting_;
  } else if (!entry.complete) {
    --incomplete_;
  }
  if (!report.complete) ++incomplete_;
  count(worker, entry.channels, -1);
  count(worker, report.channels, +1);
  entry.number = report.number;
  entry.complete = report.complete;
  entry.channels = report.channels;
  entry.left_out = report.left_out;
}

bool Ballot::is_over() const { return waiting_ == 0 && (!fast_ || skip_balance_ || balance_.empty()); }

std::optional<base::Rank> Ballot::disputed() const {
  for (const auto& [rank, worker] : workers_) {
    for (const auto other : worker.left_out) {
      const auto found = workers_.find(other);
      if (found == workers_.end()) continue;
      const auto& back = found->second.left_out;
      if (std::find(back.begin(), back.end(), rank) == back.end()) return other;
    }
  }
  return {};
}

std::optional<std::pair<base::Rank, base::Rank>> Ballot::unbalanced() const {
  if (fast_ || balance_.empty()) return {};
  return balance_.begin()->first;
}

std::vector<base::Rank> Ballot::absent() const {
  std::vector<base::Rank> all;
  for (const auto& [rank, worker] : workers_) {
    for (const auto& channel : worker.channels) {
      if (channel.unanswered > 0 && !has(channel.peer)) all.push_back(channel.peer);
    }
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

std::vector<Ballot::Wait> Ballot::waits() const {
  std::vector<Wait> all;
  for (const auto& [rank, worker] : workers_) {
    for (const auto& channel : worker.channels) {
      if (channel.unanswered > 0) all.push_back({rank, channel.peer});
    }
  }
  return all;
}

std::vector<base::Rank> Ballot::workers() const {
  std::vector<base::Rank> all;
  all.reserve(workers_.size());
  for (const auto& [rank, worker] : workers_) all.push_back(rank);
  return all;
}

std::vector<base::Rank> Ballot::awaited() const {
  std::vector<base::Rank> all;
  for (const auto& [rank, worker] : workers_) {
    if (!worker.done || (fast_ && !worker.complete)) all.push_back(rank);
  }
  return all;
}

void Ballot::count(base::Rank worker, const std::vector<ChannelReport>& channels, int64_t sign) {
  for (const auto& channel : channels) {
    add(worker, channel.peer, sign * static_cast<int64_t>(channel.sent));
    add(channel.peer, worker, -sign * static_cast<int64_t>(channel.received));
  }
}

void Ballot::add(base::Rank from, base::Rank to, int64_t messages) {
  if (messages == 0) return;
  const auto [at, fresh] = balance_.try_emplace({from, to}, 0);
  at->second += messages;
  if (at->second == 0) balance_.erase(at);
}

}  // namespace farad::autograd
