#include "autograd/contexts.h"

#include "wire/bytes.h"

namespace farad::autograd {
namespace {

constexpr size_t entry_bytes = sizeof(int64_t) + sizeof(uint64_t);

base::Rank maker_of(ContextId id) { return base::Rank(static_cast<uint16_t>(static_cast<uint64_t>(id.value) >> 48)); }

}  // namespace

uint64_t first_number(uint64_t birth) { return birth << 20 | 1; }

Contexts::Contexts(std::shared_ptr<const Group> group, uint64_t birth, Services services)
    : group_(std::move(group)), services_(std::move(services)), next_(first_number(birth)) {}

std::shared_ptr<LocalContext> Contexts::make() {
  base::Lock lock(mutex_);
  const ContextId id(static_cast<int64_t>(make_id(group_->self, next_++)));
  return contexts_.emplace(id, std::make_shared<LocalContext>(id, group_)).first->second;
}

std::shared_ptr<LocalContext> Contexts::find_or_make(ContextId id) {
  std::shared_ptr<LocalContext> context;
  bool unsure = false;
  {
    base::Lock lock(mutex_);
    auto& place = contexts_[id];
    if (!place) {
      place = std::make_shared<LocalContext>(id, group_);
      unsure = had_losses_;
    }
    context = place;
  }
  if (unsure) watch(id);
  return context;
}

void Contexts::watch(ContextId id) {
  if (const auto maker = maker_of(id); maker != group_->self) tell({{maker, {id, watches}}});
}

std::shared_ptr<LocalContext> Contexts::find(ContextId id) const {
  base::Lock lock(mutex_);
  const auto found = contexts_.find(id);
  return found == contexts_.end() || found->second->released() ? nullptr : found->second;
}

bool Contexts::knows(ContextId id) const {
  base::Lock lock(mutex_);
  return contexts_.contains(id);
}

std::vector<std::shared_ptr<LocalContext>> Contexts::all() const {
  std::vector<std::shared_ptr<LocalContext>> contexts;
  base::Lock lock(mutex_);
  for (const auto& [id, context] : contexts_) contexts.push_back(context);
  return contexts;
}

void Contexts::describe(Debug& debug) const {
  for (const auto& context : all()) debug.contexts.push_back(context->describe());
}

std::shared_ptr<LocalContext> Contexts::take_message(ContextId id, net::Peer from, LocalContext::Kind kind) {
  auto context = find_or_make(id);
  if (context->take_message(from, kind)) return context;
  if (context->should_ask(from.rank)) tell({{from.rank, {id, watches}}});
  forget_if_settled(*context);
  return nullptr;
}

void Contexts::undo_message(LocalContext& context, base::Rank to) {
  if (!context.undo_message(to)) tell({{to, {context.id(), one_less}}});
}

void Contexts::add(const std::shared_ptr<LocalContext>& context, PairId pair, Recording::Received received,
                   PassId except) {
  services_.perform(context, context->add(pair, std::move(received), except));
}

void Contexts::drop(const std::shared_ptr<LocalContext>& context, PairId pair, base::Rank to) {
  services_.perform(context, context->drop(pair));
  undo_message(*context, to);
}

void Contexts::drop_reply(net::Peer to, uint64_t call) {
  for (const auto& context : all()) {
    if (const auto pair = context->result_of(to, call); pair.value) return drop(context, pair, to.rank);
  }
}

// --- Releases ---

void Contexts::release(ContextId id) {
  if (const auto context = find(id)) release(context, Reason::Over);
}

void Contexts::close() {
  for (const auto& context : all()) release(context, Reason::Closing);
}

void Contexts::release(const std::shared_ptr<LocalContext>& context, Reason reason) {
  LocalContext::Work work;
  const auto untold = context->release(work);
  services_.perform(context, std::move(work));
  std::vector<std::pair<base::Rank, Entry>> news;
  for (const auto& [rank, messages] : untold) {
    if (rank == group_->self) {
      context->expect({rank, {}}, messages);
    } else if (reason != Reason::Closing) {
      news.emplace_back(rank, Entry(context->id(), messages | (reason == Reason::MakerLost ? maker_lost : 0)));
    }
  }
  tell(news);
  forget_if_settled(*context);
}

void Contexts::tell(const std::vector<std::pair<base::Rank, Entry>>& news) {
  if (news.empty()) return;
  {
    base::Lock lock(mutex_);
    const bool waiting = !untold_.empty();
    for (const auto& [rank, entry] : news) untold_[rank].push_back(entry);
    if (waiting) return;  // The task that is to tell of those tells of these, too.
  }
  services_.later([this] { flush(); });
}

void Contexts::flush() {
  decltype(untold_) untold;
  {
    base::Lock lock(mutex_);
    untold.swap(untold_);
  }
  for (const auto& [rank, entries] : untold) {
    wire::Bytes body(entries.size() * entry_bytes);
    char* next = body.data();
    for (const auto& [id, messages] : entries) next = wire::put(wire::put(next, id.value), messages);
    if (!services_.post(rank, std::move(body))) on_unreachable(rank, entries);
  }
}

/// Of one that was gone before it was ever reached, nothing else will tell.
void Contexts::on_unreachable(base::Rank peer, const std::vector<Entry>& untold) {
  for (const auto& [id, messages] : untold) {
    if (!knows(id)) continue;
    const auto context = find_or_make(id);
    context->unmeet(peer);
    if (maker_of(id) == peer) release(context, Reason::MakerLost);
    forget_if_settled(*context);
  }
}

base::Status Contexts::on_release(net::Peer from, std::span<const char> body) {
  if (body.size() % entry_bytes != 0) {
    return {base::Code::Protocol, "[autograd] a list of releases that is cut off, from " + group_->name_of(from.rank)};
  }
  for (const char* next = body.data(); next != body.data() + body.size();) {
    const ContextId id(wire::take<int64_t>(next));
    on_entry(from, id, wire::take<uint64_t>(next));
  }
  return {};
}

void Contexts::on_entry(net::Peer from, ContextId id, uint64_t messages) {
  if (messages == watches) {
    const auto context = find(id);
    if (!context || !context->watched_by(from)) tell({{from.rank, {id, unknown}}});
    return;
  }
  if (!knows(id)) {
    // Nothing of it is on its way here: it need not be made for that. But it may wait to hear from us.
    if (messages == 0) tell({{from.rank, {id, unknown}}});
    if (messages == 0 || messages == unknown) return;
  }
  const auto context = find_or_make(id);
  if (messages == one_less) {
    context->expect_one_less(from);
  } else if (messages == unknown) {
    context->expect(from, 0);
    if (maker_of(id) == from.rank) release(context, Reason::Over);
  } else {
    context->expect(from, messages & ~maker_lost);
    if (context->released()) {
      release(context, Reason::Over);  // It is told too, if it was not among those we knew.
    } else if (messages & maker_lost) {
      watch(id);
    } else if (maker_of(id) != group_->self) {  // What is ours ends when we end it, whatever others believe.
      release(context, Reason::Over);
    }
  }
  forget_if_settled(*context);
}

void Contexts::on_lost(net::Peer peer) {
  {
    base::Lock lock(mutex_);
    untold_.erase(peer.rank);
    had_losses_ = true;
  }
  for (const auto& context : all()) {
    bool was_heard = false;
    services_.perform(context, context->on_lost(peer, was_heard));
    if (maker_of(context->id()) == peer.rank && !was_heard) {
      release(context, Reason::MakerLost);  // Perhaps it was only the connection; but we have tried another.
    } else if (!context->released()) {
      watch(context->id());
    }
    forget_if_settled(*context);
  }
}

void Contexts::forget_if_settled(const LocalContext& context) {
  if (!context.settled()) return;
  base::Lock lock(mutex_);
  contexts_.erase(context.id());
}

}  // namespace farad::autograd
