#include "net/local/self_box.h"

#include <utility>

#include "net/local/as_value.h"
#include "wire/outgoing.h"

namespace farad::net {

SelfBox::SelfBox(base::Rank self, Bell& bell, Sink& sink, const wire::Limits& limits, size_t queue_bytes)
    : self_{self, base::Incarnation(0)}, bell_(bell), sink_(sink), limits_(limits), queue_bytes_(queue_bytes) {}

Sent SelfBox::send(base::Rank, wire::Message& message, bool urgent) {
  uint64_t bytes = 0;
  if (auto status = wire::Outgoing::check(message, limits_, bytes); !status.ok()) return {std::move(status), {}};
  {
    base::Lock lock(mutex_);
    if (closed_) return {{base::Code::Closed, "[net] closed"}, {}};
    if (!urgent && waiting_bytes_ >= queue_bytes_) {
      return {{base::Code::Busy, "[net] " + std::to_string(waiting_bytes_) + " bytes wait for ourselves"}, {}};
    }
    waiting_bytes_ += bytes;
  }
  std::vector<at::Tensor> values;
  auto status = as_values(message, values);
  {
    base::Lock lock(mutex_);
    if (status.ok()) {
      message.tensors = std::move(values);
      waiting_.push_back({std::move(message), bytes});
    } else {
      waiting_bytes_ -= bytes;
      room_ = true;  // Somebody may have been refused for our sake.
    }
    any_.store(true, std::memory_order_release);
  }
  bell_.ring();
  return {std::move(status), self_.incarnation};
}

bool SelfBox::poll() {
  if (!any_.load(std::memory_order_acquire)) return false;
  std::vector<Waiting> taken;
  bool did = false;
  {
    base::Lock lock(mutex_);
    did = std::exchange(room_, false);
    any_.store(false, std::memory_order_relaxed);
    taken.swap(waiting_);
    for (auto& one : taken) waiting_bytes_ -= one.bytes;
  }
  for (auto& one : taken) sink_.on_message(self_, std::move(one.message));
  return did || !taken.empty();
}

void SelfBox::close() {
  base::Lock lock(mutex_);
  closed_ = true;
  waiting_.clear();
}

}  // namespace farad::net
