#include <farad/error.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <map>
#include <thread>
#include <vector>

#include "common/sample.h"
#include "fabric/pair.h"
#include "fabric/roles.h"

namespace farad::bench {
namespace {

using base::Clock;

constexpr uint8_t counted = 1;  ///< one of a flood
constexpr uint8_t last = 2;     ///< asks how much memory the receiver takes; its tag is how many came before
constexpr size_t body_bytes = 16;
/// Long enough for several time slices of a core that all share, and often enough for a median.
constexpr double seconds_each = 0.15;
constexpr int rounds = 7;

size_t resident_bytes() {
  size_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

/// Sends so many messages from so many threads; how many a second, and the receiver's memory afterwards.
struct Flood {
  Pair& pair;
  std::shared_ptr<net::Waiter>& done;
  uint64_t& receiver_bytes;
  uint64_t sent = 0;

  double run(int threads, uint64_t messages) {
    done = pair.driver().make_waiter();
    const auto start = Clock::now();
    std::vector<std::thread> senders;
    for (int t = 0; t < threads; ++t) {
      senders.emplace_back([&] {
        for (uint64_t i = 0; i < messages / threads; ++i) pair.send({counted, i, wire::Bytes(body_bytes), {}});
      });
    }
    for (auto& sender : senders) sender.join();
    sent += messages / threads * threads;
    pair.send({last, sent, {}, {}});
    pair.driver().wait(*done, base::never);
    return static_cast<double>(messages) / std::chrono::duration<double>(Clock::now() - start).count();
  }
};

}  // namespace

void flood_sender(const Words& words) {
  std::shared_ptr<net::Waiter> done;
  uint64_t receiver_bytes = 0;
  Pair pair(0, words[0], words[1], [&](wire::Message&& message) {
    receiver_bytes = message.tag;
    done->complete();
  });
  Flood flood{pair, done, receiver_bytes};
  nlohmann::json result;
  flood.run(1, 20'000);
  const auto messages = static_cast<uint64_t>(flood.run(1, 20'000) * seconds_each);
  std::map<int, std::vector<double>> rates;  // By turns: what else the machine does falls on all alike.
  for (int round = 0; round < rounds; ++round) {
    for (int threads : {1, 4, 16}) rates[threads].push_back(flood.run(threads, messages));
  }
  for (auto& [threads, each] : rates) {
    std::nth_element(each.begin(), each.begin() + rounds / 2, each.end());
    result["per_second"][std::to_string(threads)] = each[rounds / 2];
  }
  const size_t before = resident_bytes(), receiver_before = receiver_bytes;
  flood.run(4, 100'000);
  auto grown = [](uint64_t now, uint64_t then) { return now > then ? now - then : 0; };
  result["grown_bytes"] = {{"messages", 100'000},
                           {"sender", grown(resident_bytes(), before)},
                           {"receiver", grown(receiver_bytes, receiver_before)}};
  std::cout << result << std::endl;
}

void flood_receiver(const Words& words) {
  Pair* self = nullptr;
  uint64_t count = 0;
  Pair pair(1, words[0], words[1], [&](wire::Message&& message) {
    if (message.kind == counted) {
      ++count;
      return;
    }
    if (message.tag != count) throw Error("[bench] " + std::to_string(count) + " of " + std::to_string(message.tag));
    self->post({last, resident_bytes(), {}, {}});
  });
  self = &pair;
  pair.wait_until_lost();
}

}  // namespace farad::bench
