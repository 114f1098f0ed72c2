#include "autograd/contexts.h"

#include "wire/bytes.h"

namespace farad::autograd {
namespace {

constexpr size_t entry_bytes = sizeof(int64_t) + sizeof(uint8_t);

base::Rank maker_of(ContextId id) { return base::Rank(static_cast<uint16_t>(static_cast<uint64_t>(id.value) >> 48)); }

}  // namespace

uint64_t first_number(uint64_t birth) { return birth << 20 | 1; }

Contexts::Contexts(std::shared_ptr<const Group> group, uint64_t birth, Services services)
    : group_(std::move(group)), services_(std::move(services)), next_(first_number(birth)), life_(birth) {}

std::shared_ptr<LocalContext> Contexts::make() {
  base::Lock lock(mutex_);
  const ContextId id(static_cast<int64_t>(make_id(group_->self, next_++)));
  auto context = std::make_shared<LocalContext>(id, group_, life_++);
  if (closed_) {
    (void)context->release();  // Nothing has happened in it, so nothing comes of it.
  } else {
    places_.emplace(id, Place{context, {}});
  }
  return context;
}

std::shared_ptr<LocalContext> Contexts::find(ContextId id) const {
  base::Lock lock(mutex_);
  const auto found = places_.find(id);
  return found == places_.end() ? nullptr : found->second.context;
}

std::shared_ptr<LocalContext> Contexts::find_or_make(ContextId id) {
  std::shared_ptr<LocalContext> context;
  {
    base::Lock lock(mutex_);
    const auto found = places_.find(id);
    if (found != places_.end()) return found->second.context;
    // One of ours that is not here has ended.
    if (maker_of(id) == group_->self || closed_ || ended_.contains(id)) return nullptr;
    context = std::make_shared<LocalContext>(id, group_, life_++);
    places_.emplace(id, Place{context, {}});
  }
  tell(maker_of(id), {id, News::Joined});
  return context;
}

std::vector<std::shared_ptr<LocalContext>> Contexts::all() const {
  std::vector<std::shared_ptr<LocalContext>> contexts;
  base::Lock lock(mutex_);
  for (const auto& [id, place] : places_) contexts.push_back(place.context);
  return contexts;
}

std::vector<std::shared_ptr<LocalContext>> Contexts::made_by(base::Rank maker) const {
  auto contexts = all();
  std::erase_if(contexts, [&](const auto& context) { return maker_of(context->id()) != maker; });
  return contexts;
}

void Contexts::describe(Debug& debug) const {
  for (const auto& context : all()) debug.contexts.push_back(context->describe());
}

std::shared_ptr<LocalContext> Contexts::take_message(ContextId id, net::Peer from, LocalContext::Kind kind) {
  auto context = find_or_make(id);
  return context && context->take_message(from, kind) ? context : nullptr;
}

void Contexts::add(const std::shared_ptr<LocalContext>& context, PairId pair, Recording::Received received) {
  if (auto work = context->add(pair, std::move(received))) services_.perform(context, std::move(*work));
}

void Contexts::went(const std::shared_ptr<LocalContext>& context, PairId pair, net::Peer to) {
  if (auto work = context->went(pair, to)) services_.perform(context, std::move(*work));
}

void Contexts::drop(const std::shared_ptr<LocalContext>& context, PairId pair) {
  services_.perform(context, context->drop(pair));
}

void Contexts::drop_reply(net::Peer to, uint64_t call) {
  for (const auto& context : all()) {
    if (const auto pair = context->result_of(to, call); pair.value) return drop(context, pair);
  }
}

// --- The end ---

Contexts::Place Contexts::take(ContextId id) {
  base::Lock lock(mutex_);
  auto taken = places_.extract(id);
  return taken ? std::move(taken.mapped()) : Place{};
}

void Contexts::release(ContextId id) {
  const auto [context, joined] = take(id);
  if (!context) return;
  services_.perform(context, context->release());
  for (const auto rank : joined) tell(rank, {id, News::Ended});
}

void Contexts::close() {
  {
    base::Lock lock(mutex_);
    closed_ = true;
  }
  for (const auto& context : all()) {
    (void)take(context->id());
    // Whoever has a Context of this worker may outlive it, and ask for what it has come to.
    services_.perform(context, context->release(LocalContext::Keep::Gradients));
  }
}

void Contexts::give_up(base::Rank maker) {
  {
    base::Lock lock(mutex_);
    unanswered_.erase(maker);
  }
  for (const auto& context : made_by(maker)) release(context->id());
}

void Contexts::on_lost(net::Peer peer) {
  for (const auto& context : all()) services_.perform(context, context->on_lost(peer));
  const auto in_doubt = made_by(peer.rank);
  if (in_doubt.empty()) return;
  int unanswered = 0;
  {
    base::Lock lock(mutex_);
    unanswered = ++unanswered_[peer.rank];
  }
  if (unanswered >= most_unanswered) return give_up(peer.rank);
  for (const auto& context : in_doubt) tell(peer.rank, {context->id(), News::StillThere});
}

// --- What workers tell each other of it ---

void Contexts::tell(base::Rank to, Entry entry) {
  bool are_many = false;
  {
    base::Lock lock(mutex_);
    auto& news = untold_[to];
    news.push_back(entry);
    are_many = news.size() >= many;
    if (!are_many && std::exchange(flush_is_due_, true)) return;  // Who is to tell of others tells of this, too.
  }
  if (are_many) return flush(false);
  services_.later([this] { flush(true); });
}

/// `due`: later has come.
void Contexts::flush(bool due) {
  decltype(untold_) untold;
  {
    base::Lock lock(mutex_);
    untold.swap(untold_);
    if (due) flush_is_due_ = false;
  }
  for (const auto& [rank, entries] : untold) {
    wire::Bytes body(entries.size() * entry_bytes);
    char* next = body.data();
    for (const auto& [id, news] : entries) next = wire::put(wire::put(next, id.value), static_cast<uint8_t>(news));
    if (!services_.post(rank, std::move(body))) give_up(rank);  // No loss will be told of it.
  }
}

base::Status Contexts::on_news(net::Peer from, std::span<const char> body) {
  if (body.size() % entry_bytes != 0) {
    return {base::Code::Protocol, "[autograd] news of contexts that are cut off, from " + group_->name_of(from.rank)};
  }
  for (const char* next = body.data(); next != body.data() + body.size();) {
    const ContextId id(wire::take<int64_t>(next));
    if (auto status = on_entry(from.rank, id, News(wire::take<uint8_t>(next))); !status.ok()) return status;
  }
  return {};
}

base::Status Contexts::on_entry(base::Rank from, ContextId id, News news) {
  const bool asks = news == News::Joined || news == News::StillThere;
  const bool tells = news == News::Runs || news == News::Ended;
  if ((!asks && !tells) || maker_of(id) != (asks ? group_->self : from)) {
    return {base::Code::Protocol, "[autograd] news " + std::to_string(static_cast<int>(news)) + " of context " +
                                      std::to_string(id.value) + ", which is none, or not for " +
                                      group_->name_of(from) + " to tell"};
  }
  if (asks) {
    answer(from, id, news);
    return {};
  }
  {
    base::Lock lock(mutex_);
    unanswered_.erase(from);
    if (news == News::Ended) ended_.add(id);
  }
  if (news == News::Ended) release(id);
  return {};
}

void Contexts::answer(base::Rank from, ContextId id, News question) {
  bool runs = false;
  {
    base::Lock lock(mutex_);
    const auto found = places_.find(id);
    runs = found != places_.end();
    if (runs) found->second.joined.insert(from);
  }
  if (!runs) {
    tell(from, {id, News::Ended});
  } else if (question == News::StillThere) {
    tell(from, {id, News::Runs});
  }
}

}  // namespace farad::autograd
