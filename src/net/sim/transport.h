#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>

#include "net/sim/network.h"
#include "net/transport.h"
#include "wire/incoming.h"
#include "wire/limits.h"

namespace farad::net::sim {

class World;

/// A worker's transport in a simulated world. Messages travel as the very frames that other transports write, so the
/// codec is part of what is simulated, and what arrives shares no memory with what was sent.
///
/// Every member is for simulated threads of that world only.
class SimTransport final : public Transport {
 public:
  /// The calling thread's process is what World::crash(self) will end.
  SimTransport(base::Rank self, World&, Bell&, Sink&, const wire::Limits&, size_t queue_bytes,
               std::chrono::milliseconds lost_after);
  ~SimTransport() override;

  std::string_view name() const override { return "sim"; }
  std::string address() const override;
  void set_address(base::Rank peer, const std::string& address) override;
  Sent send(base::Rank to, wire::Message& message, bool urgent) override;
  bool poll() override;
  void close() override;

 private:
  void take(const Arrival&);

  Network& network_;
  Sink& sink_;
  const wire::Limits limits_;
  const std::shared_ptr<wire::BufferPool> buffers_;
  Endpoint& endpoint_;
  std::map<base::Rank, Endpoint*> peers_;
};

}  // namespace farad::net::sim
