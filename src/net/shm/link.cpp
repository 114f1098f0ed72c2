#include "net/shm/link.h"

#include <new>

namespace farad::net {
namespace {

size_t ring_at(ShmLinkSide writer) {
  return ShmLink::page_bytes + static_cast<size_t>(writer) * shm::RingLayout::total;
}

}  // namespace

base::Status ShmLink::create(std::unique_ptr<ShmLink>& out) {
  std::unique_ptr<ShmLink> made(new ShmLink(ShmLinkSide::Connector));
  ShmLink& link = *made;
  if (auto s = shm::Memory::create("farad-link", bytes, link.memory_); !s.ok()) return s;
  if (auto s = link.memory_.reserve(0, page_bytes); !s.ok()) return s;
  new (link.memory_.data()) ShmLinkPage{};
  for (auto& line : link.page().lifelines) line.prepare();
  for (auto side : {ShmLinkSide::Connector, ShmLinkSide::Acceptor}) {
    if (auto s = shm::RingWriter::prepare(link.memory_, ring_at(side)); !s.ok()) return s;
  }
  link.lay_out();
  out = std::move(made);
  return {};
}

base::Status ShmLink::adopt(base::Fd memory, std::unique_ptr<ShmLink>& out) {
  std::unique_ptr<ShmLink> made(new ShmLink(ShmLinkSide::Acceptor));
  ShmLink& link = *made;
  if (auto s = shm::Memory::adopt(std::move(memory), bytes, link.memory_); !s.ok()) return s;
  // Whoever made it should have set these pages aside; if not, better to learn that now than by SIGBUS.
  if (auto s = link.memory_.reserve(0, page_bytes); !s.ok()) return s;
  for (auto side : {ShmLinkSide::Connector, ShmLinkSide::Acceptor}) {
    const size_t first = shm::RingLayout::state_bytes + shm::RingLayout::small_bytes;
    if (auto s = link.memory_.reserve(ring_at(side), first); !s.ok()) return s;
  }
  // Whatever its maker left there: our thread is to hold it, and must find it free.
  link.own_lifeline().prepare();
  link.lay_out();
  out = std::move(made);
  return {};
}

base::Status ShmLink::attach(base::Fd bell_page, base::Fd eventfd, uint32_t slot) {
  if (slot >= shm::BellPage::slots) {
    return {base::Code::Protocol, "[shm] a peer with connection slot " + std::to_string(slot)};
  }
  if (auto s = shm::Memory::adopt(std::move(bell_page), shm::BellPage::bytes, bell_); !s.ok()) return s;
  if (auto s = bell_.reserve(0, shm::BellPage::bytes); !s.ok()) return s;
  bell_.close_fd();
  eventfd_ = std::move(eventfd);
  slot_ = static_cast<int>(slot);
  return {};
}

void ShmLink::lay_out() {
  const auto other = side_ == ShmLinkSide::Connector ? ShmLinkSide::Acceptor : ShmLinkSide::Connector;
  writer = shm::RingWriter(&memory_, ring_at(side_));
  reader = shm::RingReader(&memory_, ring_at(other));
}

}  // namespace farad::net
