#include "net/rendezvous/roster.h"

#include <limits>

namespace farad::net {
namespace {

constexpr int max_size = std::numeric_limits<decltype(base::Rank::value)>::max() + 1;
constexpr int max_named_missing = 16;  // A message is for reading.

base::Status invalid(std::string message) { return {base::Code::Invalid, std::move(message)}; }

}  // namespace

std::string describe(const Member& member) {
  return "\"" + member.name + "\" (rank " + std::to_string(member.rank.value) + ")";
}

const Member* Roster::rival(const Member& newcomer) const {
  const auto seat = seats_.find(newcomer.rank);
  if (seat == seats_.end() || !seat->second.present) return nullptr;
  const Member& holder = seat->second.member;
  return holder.name == newcomer.name && holder.birth != newcomer.birth ? &holder : nullptr;
}

base::Status Roster::admit(const Member& newcomer, int size, bool& rejoined) {
  rejoined = false;
  if (!failure_.ok()) return failure_;
  if (size_ == 0 && size >= 1 && size <= max_size) {
    size_ = size;
    sized_by_ = newcomer;
  }
  if (auto status = judge(newcomer, size); !status.ok()) {
    if (!sealed_) failure_ = status;
    return status;
  }
  if (sealed_) rejoined = seats_.at(newcomer.rank).member.birth != newcomer.birth;
  sit(newcomer);
  return {};
}

base::Status Roster::judge(const Member& newcomer, int size) const {
  const auto who = describe(newcomer);
  if (size < 1 || size > max_size)
    return invalid(who + " was started for a group of " + std::to_string(size) + " workers; possible are 1 to " +
                   std::to_string(max_size));
  if (size != size_)
    return invalid(who + " was started for a group of " + std::to_string(size) + " workers, but " +
                   describe(sized_by_) + " for one of " + std::to_string(size_) + "; give all the same size");
  if (newcomer.rank.value >= size)
    return invalid(who + " has a rank out of range: a group of " + std::to_string(size) + " has ranks 0 to " +
                   std::to_string(size - 1));

  for (const auto& [rank, seat] : seats_) {
    const Member& other = seat.member;
    if (other.rank == newcomer.rank) {
      if (seat.present && other.birth != newcomer.birth)
        return invalid("rank " + std::to_string(rank.value) + " is taken twice: by \"" + other.name + "\" and by \"" +
                       newcomer.name + "\"; give each worker a rank of its own");
      // Others know the member of that rank by its name.
      if (sealed_ && other.name != newcomer.name)
        return invalid(who + " cannot take the place of " + describe(other) +
                       " in a group that is complete; restart a worker with the name it had");
    } else if (other.name == newcomer.name && (seat.present || sealed_)) {
      return invalid("the name \"" + newcomer.name + "\" is taken twice: by rank " + std::to_string(rank.value) +
                     " and by rank " + std::to_string(newcomer.rank.value) + "; give each worker a name of its own");
    }
  }
  return {};
}

void Roster::restore(const Member& member, int size) {
  if (size_ == 0) {
    size_ = size;
    sized_by_ = member;
  }
  sit(member);
}

void Roster::sit(const Member& member) {
  Seat& seat = seats_[member.rank];
  if (!seat.present) ++present_;
  seat = {member, true};
}

void Roster::leave(base::Rank rank, uint64_t birth) {
  const auto found = seats_.find(rank);
  if (found == seats_.end() || !found->second.present || found->second.member.birth != birth) return;
  found->second.present = false;
  --present_;
}

std::vector<Member> Roster::members() const {
  std::vector<Member> members;
  members.reserve(seats_.size());
  for (const auto& [rank, seat] : seats_) members.push_back(seat.member);
  return members;
}

std::string Roster::missing() const {
  std::string text;
  int count = 0;
  for (int rank = 0; rank < size_; ++rank) {
    const auto seat = seats_.find(base::Rank(static_cast<uint16_t>(rank)));
    const bool came = seat != seats_.end();
    if (came && seat->second.present) continue;
    if (++count > max_named_missing) continue;
    if (!text.empty()) text += ", ";
    text += "rank " + std::to_string(rank);
    if (came) text += " (\"" + seat->second.member.name + "\", which came and left)";
  }
  if (count > max_named_missing) text += " and " + std::to_string(count - max_named_missing) + " more";
  return text;
}

}  // namespace farad::net
