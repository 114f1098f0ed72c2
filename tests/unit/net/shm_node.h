#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "net/driver.h"
#include "net/shm/shm_transport.h"

namespace farad::net {

/// A worker of a ShmTransport and a resident thread that drives it. Writes down what it is told, and what it logs.
class ShmNode : private Sink {
 public:
  struct Record {
    std::vector<uint64_t> tags;
    std::vector<std::pair<Peer, base::Status>> losses;
    std::vector<std::string> lines;
  };

  explicit ShmNode(uint16_t rank, std::chrono::milliseconds lost_after = std::chrono::seconds(20), Secret secret = {})
      : bell_(std::chrono::microseconds(0)),
        transport_(options(rank, lost_after, std::move(secret)), bell_, *this),
        driver_(base::Runtime::real(), bell_, [this] { return transport_.poll(); }) {
    driver_.start();
  }
  ~ShmNode() {
    driver_.stop();
    transport_.close();
  }

  ShmTransport& transport() { return transport_; }
  bool say(base::Rank to, uint64_t tag) {
    wire::Message message;
    message.kind = 1;
    message.tag = tag;
    return transport_.send(to, message, false).status.ok();
  }

  Record told() {
    const std::lock_guard lock(mutex_);
    return record_;
  }
  /// True once `done` says so of the record; false if that takes longer than it should.
  template <class Condition>
  bool until(Condition done) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [&] { return done(std::as_const(record_)); });
  }

 private:
  ShmOptions options(uint16_t rank, std::chrono::milliseconds lost_after, Secret secret) {
    base::Log log("test", base::Level::Warning,
                  [this](std::string_view line) { note([&] { record_.lines.emplace_back(line); }); });
    return {.self = base::Rank(rank),
            .size = 8,
            .birth = rank + 1u,
            .secret = std::move(secret),
            .limits = {},
            .pool = wire::BufferPool::make(0),
            .arena_bytes = 1 << 20,
            .queue_bytes = 1 << 20,
            .lost_after = lost_after,
            .log = std::move(log)};
  }

  void on_message(Peer, wire::Message&& message) override {
    note([&] { record_.tags.push_back(message.tag); });
  }
  void on_lost(Peer peer, const base::Status& why) override {
    note([&] { record_.losses.emplace_back(peer, why); });
  }
  void on_unsent(Peer, const wire::Message&, const base::Status&) override {}
  template <class Change>
  void note(Change change) {
    {
      const std::lock_guard lock(mutex_);
      change();
    }
    changed_.notify_all();
  }

  std::mutex mutex_;
  Record record_;
  std::condition_variable changed_;
  SystemBell bell_;
  ShmTransport transport_;
  Driver driver_;
};

}  // namespace farad::net
