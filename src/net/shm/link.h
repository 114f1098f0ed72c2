#pragma once

#include <atomic>
#include <memory>

#include "shm/bell_page.h"
#include "shm/fd.h"
#include "shm/lifeline.h"
#include "shm/memory.h"
#include "shm/ring.h"

namespace farad::net {

/// Which end of a link: the one that connected made the memory.
enum class ShmLinkSide { Connector = 0, Acceptor = 1 };

/// What lies at the start of the memory that two connected workers share; a ring for each direction follows.
struct ShmLinkPage {
  shm::Lifeline lifelines[2];  // by side
  std::atomic<uint32_t> over;  // One side has ended this connection: no more is written or awaited.
};

/// The memory of one connection and the means to ring the other side.
class ShmLink {
 public:
  static constexpr size_t page_bytes = 4096;
  static constexpr size_t bytes = page_bytes + 2 * shm::RingLayout::total;
  static_assert(sizeof(ShmLinkPage) <= page_bytes);

  ShmLink(const ShmLink&) = delete;
  /// Makes the memory; the connector does.
  static base::Status create(std::unique_ptr<ShmLink>& out);
  /// Takes memory that a connector made.
  static base::Status adopt(base::Fd memory, std::unique_ptr<ShmLink>& out);
  /// What the other side gave us to ring it by. The link is usable from then on.
  base::Status attach(base::Fd bell_page, base::Fd eventfd, uint32_t slot);

  ShmLinkPage& page() { return *static_cast<ShmLinkPage*>(memory_.data()); }
  shm::Lifeline& own_lifeline() { return page().lifelines[static_cast<int>(side_)]; }
  shm::Lifeline& peer_lifeline() { return page().lifelines[1 - static_cast<int>(side_)]; }
  shm::BellPage& peer_bell() { return *static_cast<shm::BellPage*>(bell_.data()); }
  void ring_peer() { peer_bell().ring_slot(slot_, eventfd_.get()); }
  int memory_fd() const { return memory_.fd(); }

  shm::RingWriter writer;
  shm::RingReader reader;
  base::Fd socket;  // Stays open, so that its end tells of the peer's where the lifeline cannot.

 private:
  explicit ShmLink(ShmLinkSide side) : side_(side) {}
  void lay_out();

  const ShmLinkSide side_;
  shm::Memory memory_;
  shm::Memory bell_;
  base::Fd eventfd_;
  int slot_ = 0;
};

}  // namespace farad::net
