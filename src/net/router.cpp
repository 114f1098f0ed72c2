#include "net/router.h"

#include <c10/util/Exception.h>

#include <utility>

namespace farad::net {
namespace {

constexpr int transport_bits = 2;

}  // namespace

base::Incarnation Router::outward(base::Incarnation inner, size_t transport) {
  return base::Incarnation(inner.value == 0 ? 0 : inner.value << transport_bits | transport);
}

/// Passes a transport's news on, with incarnations and reasons as the layer above is to see them.
class Router::Prefixed final : public Sink {
 public:
  Prefixed(const Router& router, size_t number, Sink& above) : router_(router), number_(number), above_(above) {}

  void on_message(Peer from, wire::Message&& message) override {
    above_.on_message({from.rank, outward(from.incarnation, number_)}, std::move(message));
  }
  void on_lost(Peer peer, const base::Status& why) override {
    const std::string who = router_.name_of(peer.rank);
    const std::string way(router_.transports_[number_]->name());
    above_.on_lost({peer.rank, outward(peer.incarnation, number_)},
                   {base::Code::PeerLost, "[net] lost " + who + " (rank " + std::to_string(peer.rank.value) +
                                              ", over " + way + "): " + why.message()});
  }
  void on_unsent(Peer to, const wire::Message& message, const base::Status& why) override {
    above_.on_unsent({to.rank, outward(to.incarnation, number_)}, message, why);
  }

 private:
  const Router& router_;
  const size_t number_;
  Sink& above_;
};

std::unique_ptr<Sink> Router::sink_for(size_t transport, Sink& above) {
  TORCH_INTERNAL_ASSERT(transport < size_t{1} << transport_bits);
  return std::make_unique<Prefixed>(*this, transport, above);
}

void Router::add(std::unique_ptr<Transport> transport) { transports_.push_back(std::move(transport)); }

base::Status Router::set_members(std::vector<Member> members, Choice choice) {
  for (size_t i = 0; i < members.size(); ++i) {
    if (members[i].rank.value == i) continue;
    return {base::Code::Protocol, "[net] a list of members in which rank " + std::to_string(members[i].rank.value) +
                                      " stands in place " + std::to_string(i)};
  }
  choice_ = std::move(choice);
  base::Lock lock(mutex_);
  members_ = std::move(members);
  routes_ = std::make_unique<std::atomic<uint8_t>[]>(members_.size());
  size_ = members_.size();
  for (const auto& member : members_) {
    if (auto status = route(member); !status.ok()) return status;
  }
  return {};
}

base::Status Router::route(const Member& member) {
  for (const auto& transport : transports_) {
    const auto address = member.addresses.find(std::string(transport->name()));
    if (address != member.addresses.end()) transport->set_address(member.rank, address->second);
  }
  Transport* chosen = choice_(member);
  if (!chosen) {
    std::string ways;
    for (const auto& [name, address] : member.addresses) ways += (ways.empty() ? "" : ", ") + name;
    return {base::Code::Invalid, "[net] no way to " + member.name + " (rank " + std::to_string(member.rank.value) +
                                     "), which can be reached by: " + (ways.empty() ? "nothing" : ways) +
                                     "; set the same transport, or none, on every worker"};
  }
  size_t number = 0;
  while (transports_[number].get() != chosen) ++number;
  routes_[member.rank.value].store(static_cast<uint8_t>(number), std::memory_order_release);
  return {};
}

base::Status Router::update(const Member& member) {
  base::Lock lock(mutex_);
  if (member.rank.value >= members_.size()) {
    return {base::Code::Protocol, "[net] news of a member with rank " + std::to_string(member.rank.value)};
  }
  if (members_[member.rank.value].birth == member.birth) return {};
  members_[member.rank.value] = member;
  return route(member);
}

std::vector<Member> Router::members() const {
  base::Lock lock(mutex_);
  return members_;
}

std::string Router::name_of(base::Rank rank) const {
  base::Lock lock(mutex_);
  return rank.value < members_.size() ? members_[rank.value].name : "an unknown worker";
}

std::string_view Router::transport_to(base::Rank rank) const {
  return rank.value < size_ ? transports_[routes_[rank.value].load()]->name() : "none";
}

Sent Router::send(base::Rank to, wire::Message& message, bool urgent) {
  if (to.value >= size_) {
    return {{base::Code::Invalid, "[net] send to rank " + std::to_string(to.value) + ": the group has " +
                                      std::to_string(size_) + " members"},
            {}};
  }
  const size_t number = routes_[to.value].load(std::memory_order_acquire);
  auto sent = transports_[number]->send(to, message, urgent);
  sent.incarnation = outward(sent.incarnation, number);
  return sent;
}

bool Router::poll() {
  bool did = false;
  for (auto& transport : transports_) did |= transport->poll();
  return did;
}

void Router::close() {
  for (auto& transport : transports_) transport->close();
}

std::map<std::string, std::string> Router::addresses() const {
  std::map<std::string, std::string> all;
  for (const auto& transport : transports_) {
    if (auto address = transport->address(); !address.empty()) all.emplace(transport->name(), std::move(address));
  }
  return all;
}

}  // namespace farad::net
