#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "net/fabric.h"

namespace farad::bench {

/// One of two workers that were started by this benchmark.
class Pair : private net::Sink {
 public:
  using Handler = std::function<void(wire::Message&&)>;

  Pair(int rank, const std::string& rendezvous, const std::string& transport, Handler handler)
      : handler_(std::move(handler)) {
    net::FabricOptions options;
    options.rank = rank;
    options.size = 2;
    options.rendezvous = rendezvous;
    options.transport = transport;
    fabric_ = net::Fabric::join(std::move(options), *this);
    other_ = base::Rank(static_cast<uint16_t>(1 - rank));
    lost_ = fabric_->driver().make_waiter();
    fabric_->start();
  }
  ~Pair() override { fabric_->close(); }

  net::Fabric& fabric() { return *fabric_; }
  net::Driver& driver() { return fabric_->driver(); }
  void send(wire::Message message) { fabric_->send(other_, std::move(message)); }
  void post(wire::Message message) { fabric_->post(other_, std::move(message)).status.raise(); }
  void wait_until_lost() { driver().wait(*lost_, base::never); }

 private:
  void on_message(net::Peer, wire::Message&& message) override { handler_(std::move(message)); }
  void on_lost(net::Peer, const base::Status&) override { lost_->complete(); }
  void on_unsent(net::Peer, const wire::Message&, const base::Status& why) override { why.raise(); }

  const Handler handler_;
  base::Rank other_;
  std::shared_ptr<net::Waiter> lost_;
  std::unique_ptr<net::Fabric> fabric_;
};

}  // namespace farad::bench
