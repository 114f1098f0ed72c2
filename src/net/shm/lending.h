#pragma once

#include <map>
#include <memory>
#include <set>

#include "base/mutex.h"
#include "shm/arena.h"
#include "wire/lending.h"

namespace farad::net {

/// Large tensors between two processes by handle instead of by copy through the ring, over one connection.
///
/// Whoever sends owns the memory: the data are copied into a block of its arena, once, and the receiver's tensor is
/// made over that very block. When that tensor dies the block is free again; if instead it is sent back, and nobody
/// else refers to it, the block itself goes home with whatever is in it, and nothing is copied at all.
///
/// Blocks are shared by passing a descriptor over the connection's socket the first time; both sides keep them mapped.
class ShmLending final : public wire::Lender, public wire::Borrower, public std::enable_shared_from_this<ShmLending> {
 public:
  /// `socket` must stay open as long as this is used for lending or borrowing.
  ShmLending(std::shared_ptr<shm::Arena> arena, std::shared_ptr<shm::Process> peer, int socket);

  uint64_t least_bytes() const override;
  /// Any thread.
  bool lend(const at::Tensor& tensor, uint64_t data_bytes, wire::Handle& handle) override;
  /// The driver only.
  base::Status borrow(const wire::Handle& handle, uint64_t data_bytes, at::DataPtr& out) override;

 private:
  bool give_away(const at::Tensor& tensor, uint64_t data_bytes, wire::Handle& handle);
  bool hand_out(std::shared_ptr<shm::Block> block, wire::Handle& handle);
  base::Status find(uint64_t id, std::shared_ptr<shm::Block>& block);
  base::Status receive_block();
  void forget_retired();

  const std::shared_ptr<shm::Arena> arena_;
  const std::shared_ptr<shm::Process> peer_;
  const int socket_;

  base::Mutex mutex_;                            // Also keeps what is said on the socket apart.
  std::set<uint64_t> known_ GUARDED_BY(mutex_);  // Blocks of ours that the peer has the descriptor of.

  std::map<uint64_t, std::shared_ptr<shm::Block>> borrowed_;  // The driver's: blocks of the peer's that are mapped.
};

}  // namespace farad::net
