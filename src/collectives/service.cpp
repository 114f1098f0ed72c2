#include "collectives/service.h"

#include <utility>

namespace farad::collectives {

std::shared_ptr<Session> Service::make(std::vector<uint16_t> ranks, int rank, std::chrono::milliseconds timeout,
                                       const Algorithms& algorithms) {
  std::shared_ptr<Session> session;
  decltype(early_)::mapped_type early;
  decltype(lost_) lost;
  base::Status closed;
  {
    base::Lock lock(mutex_);
    GroupId id{made_[ranks]++, ranks};
    session = std::make_shared<Session>(id, rank, timeout, services_, algorithms);
    std::erase_if(sessions_, [](const auto& entry) { return entry.second.expired(); });
    sessions_.emplace(id, session);
    if (auto found = early_.extract(id)) early = std::move(found.mapped());
    lost = lost_;
    closed = closed_;
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
      if (to_come) {
        auto& kept = early_[letter.group];
        kept.emplace_back(from, std::move(letter));
      }
      return;
    }
    session = found->second.lock();
  }
  if (session) session->on_letter(from, std::move(letter));
}

std::string Service::heard_of(base::Rank rank, const Session& asks) {
  for (const auto& session : all()) {
    if (session.get() == &asks) continue;
    if (auto heard = session->heard_of(rank); !heard.empty()) return heard + " of " + to_text(session->id());
  }
  std::string heard;
  base::Lock lock(mutex_);
  for (const auto& [id, letters] : early_) {
    for (const auto& [from, letter] : letters) {
      if (from.rank != rank || letter.kind != Letter::Kind::Contribution) continue;
      if (letter.contribution.signature.operation == Operation::Send) continue;
      heard = Meetings::text_of(letter.contribution.signature, letter.path) + " of a " + to_text(id) +
              " that was not made here";
    }
  }
  return heard;
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
  }
  for (const auto& session : all()) session->on_lost(peer, why);
}

void Service::close() {
  const base::Status why{base::Code::Closed, "[collectives] the worker is closed"};
  {
    base::Lock lock(mutex_);
    closed_ = why;
  }
  for (const auto& session : all()) session->close(why);
}

}  // namespace farad::collectives
