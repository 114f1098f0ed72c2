#include "autograd/pass/message.h"

#include "wire/bytes.h"

// kind u8 | flags u8 | root u16 | number u64 | context i64 | what the kind has, in the order written here.
// Counts are u32 and come before what they count. Little-endian.

namespace farad::autograd {
namespace {

constexpr uint8_t is_fast = 1, has_options = 2, is_complete = 4, is_orphaned = 8;
constexpr auto last_kind = PassKind::Over;
constexpr auto last_code = base::Code::Closed;

class Out {
 public:
  explicit Out(std::vector<char>& bytes) : bytes_(bytes) {}

  template <class T>
  void number(T value) {
    const size_t at = bytes_.size();
    bytes_.resize(at + sizeof value);
    wire::put(bytes_.data() + at, value);
  }
  template <class Range>
  void count(const Range& range) {
    number(static_cast<uint32_t>(range.size()));
  }
  template <class Range>
  void text(const Range& range) {
    count(range);
    bytes_.insert(bytes_.end(), range.begin(), range.end());
  }

 private:
  std::vector<char>& bytes_;
};

/// Reads while there is something; afterwards zeros, and not ok().
class In {
 public:
  In(const char* data, size_t size) : next_(data), end_(data + size) {}

  template <class T>
  T number() {
    if (left() < sizeof(T)) return fail(), T{};
    return wire::take<T>(next_);
  }
  /// One byte that must not be larger than `last`.
  template <class Enum>
  Enum choice(Enum last) {
    const auto value = number<uint8_t>();
    if (value > static_cast<uint8_t>(last)) return fail(), Enum{};
    return static_cast<Enum>(value);
  }
  /// Of things that take at least `bytes` each: no more than can be there.
  uint32_t count(size_t bytes) {
    const auto n = number<uint32_t>();
    if (n > left() / bytes) return fail(), 0;
    return n;
  }
  template <class Text>
  void text(Text& to) {
    const auto n = count(1);
    to.assign(next_, next_ + n);
    next_ += n;
  }
  void fail() {
    ok_ = false;
    next_ = end_;
  }
  size_t left() const { return static_cast<size_t>(end_ - next_); }
  bool finished() const { return ok_ && next_ == end_; }

 private:
  const char* next_;
  const char* end_;
  bool ok_ = true;
};

void put(Out& out, const PassFailure& failure) {
  out.number(static_cast<uint8_t>(failure.code));
  out.number(failure.culprit.value);
  out.text(failure.what);
}

void take(In& in, PassFailure& failure) {
  failure.code = in.choice(last_code);
  failure.culprit = base::Rank(in.number<uint16_t>());
  in.text(failure.what);
}

void put(Out& out, const std::vector<Answer>& answers, const std::vector<TensorState>& states) {
  out.count(answers);
  for (const auto& answer : answers) {
    out.number(answer.pair.value);
    out.number(answer.tensors);
  }
  for (const auto state : states) out.number(static_cast<uint8_t>(state));
}

void take(In& in, std::vector<Answer>& answers, std::vector<TensorState>& states) {
  answers.resize(in.count(12));
  uint64_t total = 0;
  for (auto& answer : answers) {
    answer.pair = PairId(in.number<uint64_t>());
    answer.tensors = in.number<uint32_t>();
    total += answer.tensors;
  }
  if (total > in.left()) return in.fail();
  states.resize(total);
  for (auto& state : states) state = in.choice(TensorState::Tensor);
}

void put(Out& out, const std::vector<base::Rank>& ranks) {
  out.count(ranks);
  for (const auto rank : ranks) out.number(rank.value);
}

void take(In& in, std::vector<base::Rank>& ranks) {
  ranks.resize(in.count(2));
  for (auto& rank : ranks) rank = base::Rank(in.number<uint16_t>());
}

void put(Out& out, const std::vector<ChannelReport>& channels) {
  out.count(channels);
  for (const auto& channel : channels) {
    out.number(channel.peer.value);
    out.number(channel.sent);
    out.number(channel.received);
    out.number(channel.unanswered);
  }
}

void take(In& in, std::vector<ChannelReport>& channels) {
  channels.resize(in.count(26));
  for (auto& channel : channels) {
    channel.peer = base::Rank(in.number<uint16_t>());
    channel.sent = in.number<uint64_t>();
    channel.received = in.number<uint64_t>();
    channel.unanswered = in.number<uint64_t>();
  }
}

void put(Out& out, PassId pass) {
  out.number(pass.root.value);
  out.number(pass.number);
  out.number(pass.life);
}

void take(In& in, PassId& pass) {
  pass.root = base::Rank(in.number<uint16_t>());
  pass.number = in.number<uint64_t>();
  pass.life = in.number<uint64_t>();
}

void put(Out& out, const std::vector<PassId>& passes) {
  out.count(passes);
  for (const auto& pass : passes) put(out, pass);
}

void take(In& in, std::vector<PassId>& passes) {
  passes.resize(in.count(18));
  for (auto& pass : passes) take(in, pass);
}

}  // namespace

void encode(const PassMessage& message, std::vector<char>& bytes) {
  Out out(bytes);
  out.number(static_cast<uint8_t>(message.kind));
  out.number<uint8_t>((message.fast ? is_fast : 0) | (message.opens ? has_options : 0) |
                      (message.complete ? is_complete : 0) | (message.orphaned ? is_orphaned : 0));
  put(out, message.pass);
  out.number(message.context.value);
  if (message.opens) {
    out.text(message.options);
    put(out, message.within);
  }
  switch (message.kind) {
    case PassKind::Which:
    case PassKind::Those:
    case PassKind::Claim:
    case PassKind::Grads:
      put(out, message.answers, message.states);
      break;
    case PassKind::Done:
      put(out, message.peers);
      put(out, message.left_out);
      put(out, message.channels);
      break;
    case PassKind::Report:
      out.number(message.number);
      put(out, message.channels);
      put(out, message.left_out);
      break;
    case PassKind::Blame:
      out.number(message.blamed.value);
      break;
    case PassKind::Ask:
      out.number(message.number);
      put(out, message.within);
      break;
    case PassKind::Over:
      out.number(message.number);
      out.number(static_cast<uint8_t>(message.verdict));
      put(out, message.failure);
      break;
    case PassKind::Fail:
    case PassKind::Abort:
      put(out, message.failure);
      break;
    case PassKind::Start:
    case PassKind::Commit:
      break;
  }
}

base::Status decode(const char* data, size_t size, PassMessage& message) {
  In in(data, size);
  message = {};
  message.kind = in.choice(last_kind);
  const auto flags = in.number<uint8_t>();
  message.fast = flags & is_fast;
  message.opens = flags & has_options;
  message.complete = flags & is_complete;
  message.orphaned = flags & is_orphaned;
  take(in, message.pass);
  message.context = ContextId(in.number<int64_t>());
  if (message.opens) {
    in.text(message.options);
    take(in, message.within);
  }
  switch (message.kind) {
    case PassKind::Which:
    case PassKind::Those:
    case PassKind::Claim:
    case PassKind::Grads:
      take(in, message.answers, message.states);
      break;
    case PassKind::Done:
      take(in, message.peers);
      take(in, message.left_out);
      take(in, message.channels);
      break;
    case PassKind::Report:
      message.number = in.number<uint64_t>();
      take(in, message.channels);
      take(in, message.left_out);
      break;
    case PassKind::Blame:
      message.blamed = base::Rank(in.number<uint16_t>());
      break;
    case PassKind::Ask:
      message.number = in.number<uint64_t>();
      take(in, message.within);
      break;
    case PassKind::Over:
      message.number = in.number<uint64_t>();
      message.verdict = in.choice(Verdict::Dropped);
      take(in, message.failure);
      break;
    case PassKind::Fail:
    case PassKind::Abort:
      take(in, message.failure);
      break;
    case PassKind::Start:
    case PassKind::Commit:
      break;
  }
  if (in.finished()) return {};
  return {base::Code::Protocol, "[autograd] " + std::to_string(size) + " bytes that are no message of a pass"};
}

const char* to_string(PassKind kind) {
  switch (kind) {
    case PassKind::Start:
      return "START";
    case PassKind::Grads:
      return "GRADS";
    case PassKind::Done:
      return "DONE";
    case PassKind::Report:
      return "REPORT";
    case PassKind::Blame:
      return "BLAME";
    case PassKind::Which:
      return "WHICH";
    case PassKind::Those:
      return "THOSE";
    case PassKind::Claim:
      return "CLAIM";
    case PassKind::Fail:
      return "FAIL";
    case PassKind::Commit:
      return "COMMIT";
    case PassKind::Abort:
      return "ABORT";
    case PassKind::Ask:
      return "ASK";
    case PassKind::Over:
      return "OVER";
  }
  return "?";
}

}  // namespace farad::autograd
