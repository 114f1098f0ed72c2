#include "process/fabric/peer.h"

#include <ATen/ops/full.h>
#include <farad/error.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>

#include "suites/workers.h"

namespace farad::test {
namespace {

[[noreturn]] void fail(const std::string& why) {
  fprintf(stderr, "peer %d: %s\n", getpid(), why.c_str());
  _exit(1);
}

class PeerSink final : public net::Sink {
 public:
  explicit PeerSink(const PeerPlan& plan) : plan_(plan) {}
  void attach(net::Fabric& fabric) { fabric_ = &fabric; }

  void on_message(net::Peer from, wire::Message&& message) override {
    if (plan_.behaviour != Behaviour::Stream) return answer(from.rank, std::move(message));
    const auto [next, first] = next_.try_emplace(from.incarnation, message.tag);
    if (message.tag != next->second++) fail("heard tag " + std::to_string(message.tag) + " out of turn");
    if (!is_stream_message(message)) fail("tag " + std::to_string(message.tag) + " is not what was sent");
  }
  void on_lost(net::Peer peer, const base::Status&) override {
    if (plan_.behaviour == Behaviour::Report) answer(peer.rank, tagged(i_lost_you));
  }
  void on_unsent(net::Peer, const wire::Message&, const base::Status& why) override { fail(why.message()); }

 private:
  void answer(base::Rank to, wire::Message message) { (void)fabric_->post(to, std::move(message)).status; }

  const PeerPlan plan_;
  net::Fabric* fabric_ = nullptr;
  std::map<base::Incarnation, uint64_t> next_;  // The driver's.
};

[[noreturn]] void stream(net::Fabric& fabric) {
  for (uint64_t tag = 0;; ++tag) fabric.send(base::Rank(0), stream_message(tag));
}

}  // namespace

net::FabricOptions options_of(const PeerPlan& plan, int rank) {
  net::FabricOptions options;
  options.rank = rank;
  options.size = plan.size;
  options.transport = plan.transport;
  options.rendezvous = plan.rendezvous;
  options.lost_after = std::chrono::milliseconds(plan.lost_after_ms);
  options.join_timeout = std::chrono::seconds(30);
  options.queue_bytes = size_t{1} << 20;
  return options;
}

void be_a_peer(const PeerPlan& plan) try {
  PeerSink sink(plan);
  auto fabric = net::Fabric::join(options_of(plan, plan.rank), sink);
  sink.attach(*fabric);
  fabric->start();
  if (plan.behaviour == Behaviour::Stream) stream(*fabric);
  fabric->post(base::Rank(0), tagged(0)).status.raise();  // Here we are.
  for (;;) pause();
} catch (const std::exception& error) {
  fail(error.what());
}

wire::Message stream_message(uint64_t tag) {
  static constexpr int64_t floats[] = {0, 1, 100, 3000, 0, 70'000, 10, 400'000};
  wire::Message message = tagged(tag);
  message.body.assign(tag % 50, static_cast<char>(tag));
  message.tensors.push_back(at::full({floats[tag % 8]}, static_cast<double>(tag), at::kFloat));
  return message;
}

bool is_stream_message(const wire::Message& message) {
  const auto expected = stream_message(message.tag);
  return message.body == expected.body && message.tensors.size() == 1 && message.tensors[0].equal(expected.tensors[0]);
}

}  // namespace farad::test
