#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "net/bell.h"
#include "net/transport.h"
#include "wire/limits.h"

namespace farad::net {

/// Messages of a worker to itself. As values: what could not travel is refused, what others can reach is copied.
class SelfBox final : public Transport {
 public:
  SelfBox(base::Rank self, Bell&, Sink&, const wire::Limits&, size_t queue_bytes);

  std::string_view name() const override { return "self"; }
  std::string address() const override { return {}; }
  void set_address(base::Rank, const std::string&) override {}
  Sent send(base::Rank to, wire::Message& message, bool urgent) override;
  bool poll() override;
  void close() override;

 private:
  struct Waiting {
    wire::Message message;
    uint64_t bytes;
  };

  const Peer self_;
  Bell& bell_;
  Sink& sink_;
  const wire::Limits limits_;
  const uint64_t queue_bytes_;

  base::Mutex mutex_;
  bool closed_ GUARDED_BY(mutex_) = false;
  std::vector<Waiting> waiting_ GUARDED_BY(mutex_);
  uint64_t waiting_bytes_ GUARDED_BY(mutex_) = 0;
  bool room_ GUARDED_BY(mutex_) = false;  // There is some again, with nothing taken in.
  std::atomic<bool> any_{false};          // So that finding nothing costs the driver one load.
};

}  // namespace farad::net
