#include "collectives/service.h"

#include <utility>

namespace farad::collectives {

std::shared_ptr<Session> Service::make(std::vector<uint16_t> ranks, int rank, std::chrono::milliseconds timeout,
                                       const Algorithms& algorithms) {
  std::shared_ptr<Session> session;
  EarlyLetters::Letters early;
  decltype(lost_) lost;
  base::Status closed;
  {
    base::Lock lock(mutex_);
    GroupId id{made_[ranks]++, ranks};
    session = std::make_shared<Session>(id, rank, timeout, services_, algorithms);
    std::erase_if(sessions_, [](const auto& entry) { return entry.second.expired(); });
    sessions_.emplace(id, session);
    early = early_.take(id);
    lost = lost_;
    closed = closed_;
    for (const auto rank : id.ranks) {
      if (closed.ok() && early_.has_overrun(base::Rank(rank))) closed = why_overrun(base::Rank(rank));
    }
  }
  if (!closed.ok()) session->close(closed);
  for (const auto& [rank, life] : lost) session->on_lost({rank, life.first}, life.second);
  for (auto& [from, letter] : early) session->on_letter(from, std::move(letter));
  return session;
}

void Service::on_message(net::Peer from, wire::Message&& message) {
  Letter letter;
  if (auto status = decode(message, letter); !status.ok()) return services_.warn(status);
  std::shared_ptr<Session> session;
  {
    base::Lock lock(mutex_);
    const auto found = sessions_.find(letter.group);
    if (found == sessions_.end()) {
      const auto made = made_.find(letter.group.ranks);
      const bool to_come = made == made_.end() || letter.group.number >= made->second;
      if (!to_come || !closed_.ok() || early_.keep(from, letter) != EarlyLetters::Fate::TooMuch) return;
    } else {
      session = found->second.lock();
      if (!session) return;
    }
  }
  if (!session) return refuse(letter, why_overrun(from.rank));
  session->on_letter(from, std::move(letter));
}

/// Its sender and the other members hear that what it is of fails here, instead of waiting for this worker.
void Service::refuse(const Letter& letter, const base::Status& why) {
  if (letter.kind != Letter::Kind::Contribution) return;
  Letter answer;
  answer.kind = Letter::Kind::Failed;
  answer.group = letter.group;
  answer.path = letter.path;
  answer.code = why.code();
  answer.why = why.message();
  const auto self = services_.fabric.self().rank;
  for (const auto rank : letter.group.ranks) {
    if (rank == self.value || rank >= services_.fabric.size()) continue;  // A foreign program may name any.
    // Whoever is lost needs not hear it.
    (void)services_.fabric.post(base::Rank(rank), encode(answer)).status;
  }
}

base::Status Service::why_overrun(base::Rank rank) const {
  return {base::Code::Invalid, "[collectives] rank " + std::to_string(rank.value) + " (" + services_.name_of(rank) +
                                   ") sent more than " + std::to_string(services_.early_bytes >> 20) +
                                   " MiB for groups that rank " + std::to_string(services_.fabric.self().rank.value) +
                                   " had not made: every member makes its groups before others go far ahead"};
}

std::string Service::heard_of(base::Rank rank, const Session& asks) {
  for (const auto& session : all()) {
    if (session.get() == &asks) continue;
    if (auto heard = session->heard_of(rank); !heard.empty()) return heard + " of " + to_text(session->id());
  }
  base::Lock lock(mutex_);
  return early_.heard_of(rank);
}

std::vector<std::shared_ptr<Session>> Service::all() {
  std::vector<std::shared_ptr<Session>> sessions;
  base::Lock lock(mutex_);
  for (const auto& [id, weak] : sessions_) {
    if (auto session = weak.lock()) sessions.push_back(std::move(session));
  }
  return sessions;
}

void Service::on_lost(net::Peer peer, const base::Status& why) {
  {
    base::Lock lock(mutex_);
    lost_.insert_or_assign(peer.rank, std::pair(peer.incarnation, why));
    early_.forgive(peer.rank);
  }
  for (const auto& session : all()) session->on_lost(peer, why);
}

void Service::close() {
  const base::Status why{base::Code::Closed, "[collectives] the worker is closed"};
  {
    base::Lock lock(mutex_);
    closed_ = why;
    early_.clear();
  }
  for (const auto& session : all()) session->close(why);
}

}  // namespace farad::collectives
