// What becomes of a message within one process when there is no memory for the copy that would be handed over.

#include <ATen/ops/ones.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

#include <chrono>
#include <new>

#include "net/local/self_box.h"
#include "net/local/transport.h"
#include "net/system_bell.h"

namespace farad::net {
namespace {

using base::Code;
using base::Rank;

/// While it lives libtorch gets no memory for tensors.
class NoMemory : public c10::Allocator {
 public:
  NoMemory() { c10::SetCPUAllocator(this); }
  ~NoMemory() { c10::SetCPUAllocator(usual_); }
  // The second is what later versions of libtorch ask, and the third what they want to have besides.
  c10::DataPtr allocate(size_t) const { throw std::bad_alloc(); }
  c10::DataPtr allocate(size_t) { throw std::bad_alloc(); }
  void copy_data(void*, const void*, size_t) const {}

 private:
  c10::Allocator* const usual_ = c10::GetCPUAllocator();
};

struct Ears : Sink {
  void on_message(Peer, wire::Message&& message) override { heard.push_back(std::move(message)); }
  void on_lost(Peer, const base::Status&) override {}
  void on_unsent(Peer, const wire::Message&, const base::Status&) override {}
  std::vector<wire::Message> heard;
};

constexpr size_t queue_bytes = 1000;  // Less than one such message.

void expect_failure_takes_no_room(Transport& sender, Transport& receiver, Rank to, const Ears& ears) {
  const auto ours = at::ones({1000});
  wire::Message message;
  message.tensors = {at::ones({3}), ours};  // The first can be handed over as it is, the second must be copied.
  const auto* first = message.tensors[0].unsafeGetTensorImpl();
  {
    NoMemory none;
    EXPECT_EQ(sender.send(to, message, false).status.code(), Code::Invalid);
  }
  ASSERT_EQ(message.tensors.size(), 2u) << "the message is untouched";
  EXPECT_EQ(message.tensors[0].unsafeGetTensorImpl(), first);
  EXPECT_TRUE(message.tensors[1].is_same(ours));

  const auto sent = sender.send(to, message, false);
  EXPECT_TRUE(sent.status.ok()) << sent.status.message();
  EXPECT_TRUE(receiver.poll());
  ASSERT_EQ(ears.heard.size(), 1u);
  EXPECT_EQ(ears.heard[0].tensors.size(), 2u);
}

TEST(SelfBox, AMessageThatCannotBeCopiedTakesNoRoom) {
  SystemBell bell(std::chrono::microseconds(0));
  Ears ears;
  SelfBox box(Rank(0), bell, ears, {}, queue_bytes);
  expect_failure_takes_no_room(box, box, Rank(0), ears);
}

TEST(LocalTransport, AMessageThatCannotBeCopiedTakesNoRoom) {
  SystemBell bell(std::chrono::microseconds(0));
  Ears ears;
  const auto hub = std::make_shared<LocalHub>();
  LocalTransport one(Rank(0), hub, bell, ears, {}, queue_bytes), two(Rank(1), hub, bell, ears, {}, queue_bytes);
  one.set_address(Rank(1), two.address());
  expect_failure_takes_no_room(one, two, Rank(1), ears);
}

}  // namespace
}  // namespace farad::net
