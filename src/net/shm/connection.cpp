#include "net/shm/connection.h"

#include <array>
#include <utility>

namespace farad::net {
namespace {

constexpr int most_pieces = 16;
/// Bytes are given back to the writer in portions, so that both sides work at once on a long message.
constexpr size_t portion = 256 << 10;

}  // namespace

ShmConnection::ShmConnection(Peer p, uint32_t s, const wire::Limits& limits, std::shared_ptr<wire::BufferPool> pool,
                             size_t queue_bytes)
    : peer(p), slot(s), limits_(limits), queue_bytes_(queue_bytes), incoming_(limits, std::move(pool)) {}

std::shared_ptr<ShmLink> ShmConnection::link() const {
  base::Lock lock(mutex_);
  return link_;
}

base::Status ShmConnection::send(wire::Message& message, bool urgent) {
  if (state() == State::Over) return {base::Code::Closed, "[shm] this connection is over"};
  if (!urgent && queued_bytes_.load() >= queue_bytes_ && !has_room()) {
    return {base::Code::Busy, "[shm] " + std::to_string(queued_bytes_.load()) + " bytes wait for rank " +
                                  std::to_string(peer.rank.value)};
  }
  // Not under the lock: tensors that are lent are copied here.
  wire::Outgoing out;
  if (auto status = wire::Outgoing::make(message, limits_, out, lender_.load(std::memory_order_acquire)); !status.ok())
    return status;
  base::Lock lock(mutex_);
  if (state_ == State::Over) return {};  // Ended just now: it shares the fate of all that was on its way.
  if (state_ == State::Open && queue_.empty()) {
    const bool wrote = write(out);
    if (wrote) link_->ring_peer();
    if (out.done()) {
      note_lent(out);
      return {};
    }
  }
  out.hold();  // Its owner goes on while it waits here.
  queued_bytes_ += out.size() + out.lent_bytes();
  queue_.push_back(std::move(out));
  has_queue_.store(true, std::memory_order_release);
  if (state_ == State::Open) write_queued();
  return {};
}

bool ShmConnection::write(wire::Outgoing& out) {
  bool wrote = false;
  while (!out.done()) {
    std::array<iovec, most_pieces> pieces;
    const int count = out.gather(pieces.data(), most_pieces);
    const size_t n = link_->writer.write({pieces.data(), static_cast<size_t>(count)});
    out.advance(n);
    wrote |= n > 0;
    if (n == 0 && link_->writer.wait_for_room()) break;
  }
  return wrote;
}

void ShmConnection::write_queued() {
  bool wrote = false;
  while (!queue_.empty()) {
    auto& front = queue_.front();
    wrote |= write(front);
    if (!front.done()) break;
    if (!front.verdict().ok()) unsent_.push_back({front.stub(), front.verdict()});
    queued_bytes_ -= front.size() + front.lent_bytes();
    note_lent(front);
    queue_.pop_front();
    made_room_ = true;
  }
  note_what_is_left();
  if (wrote) link_->ring_peer();
}

void ShmConnection::note_what_is_left() {
  has_queue_.store(!queue_.empty() || !unsent_.empty() || made_room_ || refused_, std::memory_order_release);
}

void ShmConnection::note_lent(const wire::Outgoing& out) {
  if (out.lent_bytes() == 0) return;
  forget_taken_in();
  lent_.push_back({link_->writer.written(), out.lent_bytes()});
  queued_bytes_ += out.lent_bytes();
}

void ShmConnection::forget_taken_in() {
  if (lent_.empty()) return;
  const uint64_t read = link_->writer.read();
  for (; !lent_.empty() && lent_.front().end <= read; lent_.pop_front()) queued_bytes_ -= lent_.front().bytes;
}

bool ShmConnection::has_room() {
  base::Lock lock(mutex_);
  forget_taken_in();
  if (queued_bytes_ < queue_bytes_) return true;
  if (lent_.empty()) return false;  // The queue tells of its room by itself.
  refused_ = true;
  look_for_room();
  note_what_is_left();
  return queued_bytes_ < queue_bytes_;
}

void ShmConnection::look_for_room() {
  if (!refused_) return;
  link_->writer.watch_reader(true);  // First: what is taken in after we have looked is told to the driver.
  forget_taken_in();
  if (queued_bytes_ >= queue_bytes_ && !lent_.empty()) return;
  link_->writer.watch_reader(false);
  refused_ = false;
  made_room_ = true;
}

bool ShmConnection::open(std::shared_ptr<ShmLink> link, std::shared_ptr<ShmLending> lending) {
  base::Lock lock(mutex_);
  if (state_ != State::Connecting) return false;
  link_ = std::move(link);
  lending_ = std::move(lending);
  lender_.store(lending_.get(), std::memory_order_release);
  state_ = State::Open;
  write_queued();
  return true;
}

void ShmConnection::doom(base::Status why) {
  base::Lock lock(mutex_);
  if (doom_.ok()) doom_ = std::move(why);
  doomed_.store(true, std::memory_order_release);
}

bool ShmConnection::flush(Sink& sink) {
  if (!has_queue_.load(std::memory_order_acquire)) return false;
  std::vector<Unsent> unsent;
  bool did = false;
  {
    base::Lock lock(mutex_);
    if (state_ != State::Open) return false;
    write_queued();
    look_for_room();
    unsent.swap(unsent_);  // Also what has just been taken back: once all is written, nobody rings us any more.
    did = std::exchange(made_room_, false);  // Also by open(): somebody may wait for it.
    note_what_is_left();
  }
  for (auto& one : unsent) sink.on_unsent(peer, one.message, one.why);
  return did || !unsent.empty();
}

bool ShmConnection::take_in(Sink& sink, int budget, bool& did) {
  if (!look_for_link()) return false;
  ShmLink* const link = reading_.get();
  while (budget > 0) {
    std::span<const char> bytes;
    auto status = link->reader.peek(bytes);
    if (status.ok() && bytes.empty()) return false;
    did = true;
    size_t consumed = 0;
    if (status.ok()) status = incoming_.feed(bytes.first(std::min(bytes.size(), portion)), consumed);
    if (!status.ok()) {
      const bool theirs = status.code() == base::Code::Protocol;
      doom(theirs ? base::Status(status.code(), "it sent what is no message of ours: " + status.message())
                  : base::Status(base::Code::PeerLost, "we could not take in what it sent: " + status.message()));
      return false;
    }
    if (link->reader.consume(consumed)) link->ring_peer();
    if (!incoming_.complete()) continue;
    const bool torn = incoming_.torn();
    auto message = incoming_.take();
    --budget;
    if (!torn) sink.on_message(peer, std::move(message));
  }
  return true;
}

bool ShmConnection::look_for_link() {
  if (reading_) return true;
  base::Lock lock(mutex_);
  reading_ = link_;
  incoming_.borrow_from(lending_.get());
  return reading_ != nullptr;
}

bool ShmConnection::doomed() {
  if (look_for_link() && reading_->page().over.load(std::memory_order_acquire)) {
    doom({base::Code::PeerLost, "it ended the connection"});
  }
  return given_up();
}

base::Status ShmConnection::end() {
  base::Lock lock(mutex_);
  state_ = State::Over;
  queue_.clear();
  if (link_) {
    link_->page().over.store(1, std::memory_order_release);
    link_->ring_peer();
  }
  return doom_;
}

}  // namespace farad::net
