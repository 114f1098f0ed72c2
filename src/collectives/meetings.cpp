#include "collectives/meetings.h"

#include <algorithm>
#include <utility>

namespace farad::collectives {
namespace {

constexpr size_t operation_steps = 2;  // A path's first: the channel, and the operation's number in it.
constexpr size_t exchange_steps = 3;   // And which exchange of it; what is longer is of backwards.

/// Numbers of what all do together: the section, and which operation in it.
constexpr uint64_t section = uint64_t{1} << 32;

Path parent_of(const Path& path) { return {path.begin(), path.end() - 1}; }

bool lies_below(const Path& path, const Path& above) {
  return path.size() > above.size() && std::equal(above.begin(), above.end(), path.begin());
}

}  // namespace

Meetings::Meetings(int self, std::function<std::string(int)> name_of, std::string group)
    : self_(self), name_of_(std::move(name_of)), group_(std::move(group)) {}

// --- What is kept, and how long ---

Path Meetings::begin(uint64_t channel) {
  Path path{channel, next_[channel]++};
  alive_.try_emplace(path);
  return path;
}

void Meetings::begin(const Path& exchange) { alive_.try_emplace(exchange); }

void Meetings::end(const Path& path) {
  alive_.erase(path);
  if (path.size() > operation_steps) {
    if (const auto parent = alive_.find(parent_of(path)); parent != alive_.end()) parent->second.insert(path.back());
  }
  // What is below it and still goes on, as the backwards of an exchange do when its operation is over, stays.
  for (auto at = boxes_.upper_bound(path); at != boxes_.end() && lies_below(at->first, path);) {
    const bool stays = at->second.open || alive_.contains(at->first) || may_come(at->first);
    at = stays ? std::next(at) : boxes_.erase(at);
  }
  if (const auto own = boxes_.find(path); own != boxes_.end() && !own->second.open) boxes_.erase(own);
}

Meetings::Gap Meetings::skip_section(const base::Status& why, Effects& out) {
  auto& next = next_[0];
  const Gap gap{next, (next / section + 1) * section};
  boxes_.erase(boxes_.lower_bound({0, gap.first}), boxes_.lower_bound({0, gap.next}));  // Nobody waits in those.
  next = gap.next;
  std::erase_if(skipped_, [&](const Skipped& each) { return each.gap.next <= next; });
  left_ = why;
  check_open(0, gap.first, out);
  return gap;
}

/// Those of channel 0 that are open, of operations from number `first` on and before number `next`.
void Meetings::check_open(uint64_t first, uint64_t next, Effects& out) {
  std::vector<Path> concerned;
  for (auto at = boxes_.lower_bound({0, first}); at != boxes_.lower_bound({0, next}); ++at) {
    if (at->second.open) concerned.push_back(at->first);
  }
  for (const auto& path : concerned) check(boxes_.find(path), out);
}

void Meetings::skipped(int from, Gap gap, const base::Status& why, Effects& out) {
  if (gap.next <= next_[0]) return;
  skipped_.push_back({from, gap, why});
  check_open(gap.first, gap.next, out);
}

/// Whether somebody here may yet wait at `path`.
bool Meetings::may_come(const Path& path) const {
  if (path.size() == operation_steps) {
    const auto next = next_.find(path[0]);
    return alive_.contains(path) || next == next_.end() || path[1] >= next->second;
  }
  const auto parent = parent_of(path);
  if (const auto found = alive_.find(parent); found != alive_.end()) return !found->second.contains(path.back());
  return may_come(parent);
}

void Meetings::name(const Path& path, const Path& other) {
  names_[other] = path;
  if (auto early = boxes_.extract(other)) boxes_[path] = std::move(early.mapped());
}

const Path& Meetings::meant_by(const Path& path) const {
  const auto found = names_.find(path);
  return found == names_.end() ? path : found->second;
}

Meetings::Box* Meetings::keep(const Path& path) {
  if (const auto found = boxes_.find(path); found != boxes_.end()) return &found->second;
  return may_come(path) ? &boxes_[path] : nullptr;
}

// --- What happens ---

void Meetings::open(const Path& path, const std::vector<int>& from, std::vector<int> others, Signature own,
                    Effects& out) {
  auto& box = boxes_[path];
  box.open = true;
  box.awaits = !from.empty();
  box.others = std::move(others);
  box.own = std::move(own);
  const auto exchange = boxes_.find(parent_of(path));
  const auto has_ended = [&](int member) {
    if (exchange == boxes_.end()) return false;
    const auto end = exchange->second.ended.find(member);
    return end != exchange->second.ended.end() && path.back() >= end->second;
  };
  for (const int member : from) {
    if (!box.came.contains(member) && !has_ended(member)) box.missing.insert(member);
  }
  check(boxes_.find(path), out);
}

void Meetings::came(const Path& name, int from, Contribution contribution, Effects& out) {
  const Path& path = meant_by(name);
  auto* box = keep(path);
  if (!box) return;
  box->came.try_emplace(from, std::move(contribution));
  box->missing.erase(from);
  if (box->open) check(boxes_.find(path), out);
}

void Meetings::failed(const Path& name, int from, const base::Status& why, Effects& out) {
  const Path& path = meant_by(name);
  auto* box = keep(path);
  if (!box || !box->failure.ok()) return;
  box->failure = {why.code(), why.message() + " (as " + name_of_(from) + " says)"};
  if (box->open) check(boxes_.find(path), out);
}

void Meetings::ended(const Path& exchange, int from, uint64_t since, Effects& out) {
  if (!alive_.contains(exchange) && !may_come(exchange)) return;
  boxes_[exchange].ended.try_emplace(from, since);
  std::vector<Path> concerned;
  for (auto at = boxes_.upper_bound(exchange); at != boxes_.end() && lies_below(at->first, exchange); ++at) {
    if (!at->second.open || at->first.size() != exchange.size() + 1 || at->first.back() < since) continue;
    if (at->second.missing.erase(from) > 0) concerned.push_back(at->first);
  }
  for (const auto& path : concerned) check(boxes_.find(path), out);
}

void Meetings::lost(int member, const base::Status& why, Effects& out) {
  if (!lost_.try_emplace(member, why).second) return;
  std::vector<Path> concerned;
  for (const auto& [path, box] : boxes_) {
    if (box.open) concerned.push_back(path);
  }
  for (const auto& path : concerned) check(boxes_.find(path), out);
}

void Meetings::not_sent(const Path& path, int to, const base::Status& why, Effects& out) {
  const auto found = boxes_.find(path);
  if (found == boxes_.end() || !found->second.open) return;
  finish(found, {why.code(), what(path, found->second.own) + ": to " + name_of_(to) + ": " + why.message()}, true, out);
}

void Meetings::expire(const Path& path, const std::string& span, const std::map<int, std::string>& elsewhere,
                      Effects& out) {
  const auto found = boxes_.find(path);
  if (found == boxes_.end() || !found->second.open) return;
  finish(found,
         {base::Code::Timeout, what(path, found->second.own) + ": " + who_is_missing(path, " in " + span, elsewhere) +
                                   "; every member has to call it"},
         true, out);
}

void Meetings::abandon(const Path& path) {
  Effects nobody_listens;
  const auto found = boxes_.find(path);
  if (found != boxes_.end() && found->second.open) finish(found, {}, false, nobody_listens);
}

void Meetings::close(const base::Status& why, Effects& out) {
  closed_ = why;
  std::vector<Path> all;
  for (const auto& [path, box] : boxes_) {
    if (box.open) all.push_back(path);
  }
  for (const auto& path : all) finish(boxes_.find(path), why, false, out);
}

// --- How it ends ---

void Meetings::check(Boxes::iterator at, Effects& out) {
  auto& [path, box] = *at;
  if (!closed_.ok()) return finish(at, closed_, false, out);
  if (!box.failure.ok()) return finish(at, box.failure, false, out);
  if (auto text = mismatch(path, box); !text.empty()) {
    return finish(at, {base::Code::Invalid, std::move(text)}, true, out);
  }
  for (const auto& [member, why] : lost_) {
    if (!needs(path, box, member)) continue;
    return finish(at,
                  {base::Code::PeerLost, what(path, box.own) + ": " + name_of_(member) + " is lost (" + why.message() +
                                             "); make a group of those that are left"},
                  true, out);
  }
  for (const auto& [member, gap, why] : skipped_) {
    if (path[0] != 0 || path[1] < gap.first || path[1] >= gap.next || box.missing.empty()) continue;
    // That one tells everybody itself.
    return finish(
        at,
        {why.code(), what(path, box.own) + ": " + name_of_(member) + " takes no part in it (" + why.message() + ")"},
        false, out);
  }
  if (is_of_left_section(path) && !box.missing.empty()) {
    // Those that it waits for may have left before they came to it.
    return finish(at,
                  {left_.code(), what(path, box.own) + ": " + name_of_(self_) + " takes no part in it any more (" +
                                     left_.message() + ")"},
                  true, out);
  }
  if (box.missing.empty()) finish(at, {}, false, out);
}

/// An exchange of an operation that began here before its section was left. Backwards are not concerned.
bool Meetings::is_of_left_section(const Path& path) const {
  if (path[0] != 0 || path.size() != exchange_steps) return false;
  const auto next = next_.find(0);
  return next != next_.end() && path[1] / section < next->second / section;
}

/// Whether it is of no use without that member.
bool Meetings::needs(const Path& path, const Box& box, int member) {
  // Where all take part, one that has heard of a loss comes no more, though the lost one itself may have come before.
  if (path[0] == 0) return !box.missing.empty();
  return box.awaits ? box.missing.contains(member) : std::ranges::find(box.others, member) != box.others.end();
}

void Meetings::finish(Boxes::iterator at, base::Status status, bool tell, Effects& out) {
  auto taken = boxes_.extract(at);
  auto& box = taken.mapped();
  if (const auto parent = alive_.find(parent_of(taken.key())); parent != alive_.end()) {
    parent->second.insert(taken.key().back());
    for (const auto& [other, path] : names_) {
      if (path == taken.key()) parent->second.insert(other.back());
    }
  }
  std::erase_if(names_, [&](const auto& each) { return each.second == taken.key(); });
  // Of an exchange, what the others have said of its backwards still counts.
  if (!box.ended.empty()) boxes_[taken.key()].ended = std::move(box.ended);
  if (tell) out.tell.push_back({taken.key(), std::move(box.others), status});
  out.done.push_back({std::move(taken.key()), std::move(status), std::move(box.came)});
}

// --- What is said ---

std::string Meetings::what(const Path& path, const Signature& own) const {
  return "[collectives] " + text_of(own, path) + " of " + group_;
}

std::string Meetings::mismatch(const Path& path, const Box& box) const {
  for (const auto& [member, contribution] : box.came) {
    if (agree(box.own, contribution.signature)) continue;
    return what(path, box.own) + ": members do not call the same: " + name_of_(member) + " called " +
           to_text(contribution.signature) + ", and " + name_of_(self_) + " called " + to_text(box.own);
  }
  return {};
}

std::string Meetings::text_of(const Signature& signature, const Path& path) {
  const std::string after = path[1] < section ? "" : " after failure " + std::to_string(path[1] / section);
  return to_text(signature) + ", number " + std::to_string(path[1] % section) + after;
}

std::string Meetings::who_is_missing(const Path& path, const std::string& when,
                                     const std::map<int, std::string>& elsewhere) const {
  const auto found = boxes_.find(path);
  if (found == boxes_.end() || found->second.missing.empty()) return {};
  std::string who, where;
  for (const int member : found->second.missing) {
    who += (who.empty() ? "" : ", ") + name_of_(member);
    auto instead = heard_of(member);
    if (const auto other = elsewhere.find(member); instead.empty() && other != elsewhere.end()) instead = other->second;
    if (!instead.empty()) where += " (" + name_of_(member) + " came to " + instead + ")";
  }
  return who + " did not come" + when + where;
}

std::string Meetings::heard_of(int member) const {
  for (const auto& [path, box] : boxes_) {
    if (box.open) continue;
    const auto found = box.came.find(member);
    if (found == box.came.end() || found->second.signature.operation == Operation::Send) continue;
    return text_of(found->second.signature, path);
  }
  return {};
}

}  // namespace farad::collectives
