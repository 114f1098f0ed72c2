#include "collectives/early_letters.h"

#include <algorithm>

#include "collectives/meetings.h"

namespace farad::collectives {
namespace {

size_t bytes_of(const Letter& letter) {
  const auto& contribution = letter.contribution;
  size_t bytes = sizeof(Letter) + letter.why.size() + letter.path.size() * sizeof(letter.path[0]) +
                 2 * letter.group.ranks.size() * sizeof(letter.group.ranks[0]);  // Once more as the key.
  for (const auto& shape : contribution.signature.shapes) bytes += sizeof(shape) + shape.size() * sizeof(int64_t);
  return bytes + (contribution.tensor.defined() ? contribution.tensor.nbytes() : 0);
}

}  // namespace

EarlyLetters::Fate EarlyLetters::keep(net::Peer from, Letter& letter) {
  const auto& ranks = letter.group.ranks;
  const auto is_member = [&](base::Rank rank) { return std::ranges::find(ranks, rank.value) != ranks.end(); };
  if (!is_member(self_) || !is_member(from.rank)) return Fate::Foreign;
  auto& so_far = bytes_[from];
  const size_t bytes = bytes_of(letter);
  if (overrun_.contains(from.rank) || (so_far > 0 && so_far + bytes > most_bytes_)) {
    overrun_.insert(from.rank);
    return Fate::TooMuch;
  }
  so_far += bytes;
  auto& kept = letters_[letter.group];
  kept.emplace_back(from, std::move(letter));
  return Fate::Kept;
}

EarlyLetters::Letters EarlyLetters::take(const GroupId& group) {
  auto found = letters_.extract(group);
  if (!found) return {};
  for (const auto& [from, letter] : found.mapped()) bytes_[from] -= bytes_of(letter);
  return std::move(found.mapped());
}

void EarlyLetters::clear() {
  letters_.clear();
  bytes_.clear();
}

std::string EarlyLetters::heard_of(base::Rank rank) const {
  std::string heard;
  for (const auto& [id, letters] : letters_) {
    for (const auto& [from, letter] : letters) {
      if (from.rank != rank || letter.kind != Letter::Kind::Contribution) continue;
      if (letter.contribution.signature.operation == Operation::Send) continue;
      heard = Meetings::text_of(letter.contribution.signature, letter.path) + " of a " + to_text(id) +
              " that was not made here";
    }
  }
  return heard;
}

}  // namespace farad::collectives
