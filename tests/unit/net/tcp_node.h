#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "net/driver.h"
#include "net/system_bell.h"
#include "net/tcp/tcp_transport.h"

namespace farad::net {

/// A worker of its own inside a test: a TcpTransport, a bell, and a resident thread that drives it once start()ed.
/// Writes down what it is told.
class TcpNode : private Sink {
 public:
  struct Heard {
    Peer from;
    wire::Message message;
  };
  struct Loss {
    Peer peer;
    base::Status why;
  };
  struct Taken {
    Peer to;
    wire::Message message;
    base::Status why;
  };
  struct Record {
    std::vector<Heard> heard;
    std::vector<Loss> losses;
    std::vector<Taken> taken_back;
    std::vector<std::string> lines;  // of its log
  };

  explicit TcpNode(uint16_t rank, TcpOptions options = {})
      : bell_(std::chrono::microseconds(0)),
        transport_(with_rank(std::move(options), rank), bell_, bell_, *this, base::Runtime::real()),
        driver_(base::Runtime::real(), bell_, [this] { return transport_.poll(); }) {}
  ~TcpNode() { close(); }

  void start() { driver_.start(); }
  void close() {
    driver_.stop();
    transport_.close();
  }

  TcpTransport& transport() { return transport_; }
  base::Rank rank() const { return rank_; }
  void knows(TcpNode& other) { transport_.set_address(other.rank(), other.transport().address()); }

  /// A small message with that tag.
  Sent say(TcpNode& other, uint64_t tag) {
    wire::Message message = {};
    message.kind = 1;
    message.tag = tag;
    message.body.assign(16, static_cast<char>(tag));
    return transport_.send(other.rank(), message, false);
  }
  Sent say(TcpNode& other, uint64_t tag, at::Tensor tensor) {
    wire::Message message = {};
    message.kind = 1;
    message.tag = tag;
    message.tensors.push_back(std::move(tensor));
    return transport_.send(other.rank(), message, false);
  }

  /// Answers every message with its like from within on_message.
  void echo() { echoes_ = true; }

  /// What it was told so far.
  Record told() {
    std::lock_guard lock(mutex_);
    return record_;
  }
  /// True once `done` says so of the record; false if that takes longer than it should.
  template <class Condition>
  bool until(Condition done, std::chrono::milliseconds most = std::chrono::seconds(20)) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, most, [&] { return done(std::as_const(record_)); });
  }

 private:
  TcpOptions with_rank(TcpOptions options, uint16_t rank) {
    rank_ = base::Rank(rank);
    options.self = rank_;
    options.log = base::Log("test", base::Level::Warning,
                            [this](std::string_view line) { note([&] { record_.lines.emplace_back(line); }); });
    return options;
  }

  void on_message(Peer from, wire::Message&& message) override {
    if (echoes_) {
      wire::Message answer = message;
      (void)transport_.send(from.rank, answer, true);
    }
    note([&] { record_.heard.push_back({from, std::move(message)}); });
  }
  void on_lost(Peer peer, const base::Status& why) override {
    note([&] { record_.losses.push_back({peer, why}); });
  }
  void on_unsent(Peer to, const wire::Message& message, const base::Status& why) override {
    note([&] { record_.taken_back.push_back({to, message, why}); });
  }
  template <class Change>
  void note(Change change) {
    {
      std::lock_guard lock(mutex_);
      change();
    }
    changed_.notify_all();
  }

  base::Rank rank_;
  bool echoes_ = false;
  std::mutex mutex_;
  Record record_;
  std::condition_variable changed_;
  SystemBell bell_;
  TcpTransport transport_;
  Driver driver_;
};

}  // namespace farad::net
