#pragma once

#include <map>
#include <memory>
#include <string>

#include "net/local/hub.h"
#include "net/transport.h"
#include "wire/limits.h"

namespace farad::net {

/// Messages between Workers of one process, handed over in memory.
///
/// They are values all the same: a tensor that anybody else can still reach is copied, and what could not travel by
/// another transport is refused here too. Tensors arrive as leaves; requires_grad travels, history does not.
class LocalTransport final : public Transport {
 public:
  LocalTransport(base::Rank self, std::shared_ptr<LocalHub>, Bell&, Sink&, const wire::Limits&, size_t queue_bytes);
  ~LocalTransport() override;

  std::string_view name() const override { return "local"; }
  std::string address() const override { return address_; }
  void set_address(base::Rank peer, const std::string& address) override;
  Sent send(base::Rank to, wire::Message& message, bool urgent) override;
  bool poll() override;
  void close() override;

 private:
  base::Status find_link(base::Rank to, std::shared_ptr<LocalLink>& link);
  base::Status reserve(LocalLink::End& near, LocalPlace& far, uint64_t bytes, bool urgent);
  void release(LocalLink::End& near, LocalPlace& far, uint64_t bytes);
  bool deliver(const std::shared_ptr<LocalLink>&, int side, wire::Message&, uint64_t bytes);
  void take(LocalArrival&);

  const std::shared_ptr<LocalHub> hub_;
  Sink& sink_;
  const wire::Limits limits_;
  const std::shared_ptr<LocalPlace> place_;
  const std::string address_;

  base::Mutex mutex_;
  std::map<base::Rank, std::string> addresses_ GUARDED_BY(mutex_);
};

}  // namespace farad::net
