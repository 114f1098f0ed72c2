#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "autograd/pass/passes.h"
#include "explore/graph.h"

namespace farad::autograd::explore {

inline base::Rank rank(int worker) { return base::Rank(static_cast<uint16_t>(worker)); }

/// What may go wrong in a World, and how often.
struct Dangers {
  int kills = 0;               ///< workers that die, at any moment
  int cuts = 0;                ///< connections that break, at any moment, and can be made anew
  int refusals = 0;            ///< connections that cannot be made once; only who wanted to make it hears so
  int cancels = 0;             ///< roots that give up
  int lost_calls = 0;          ///< calls in flight that their caller gives up; the message may still arrive
  bool immortal_root = false;  ///< root workers do not die
  bool slow_scans = false;     ///< other things happen between a snapshot and its topology
  bool atomic_nodes = false;   ///< ready nodes run at once, before anything else happens
};

/// Several workers that run a Graph's backward passes with the real protocol, in a network where any message may take
/// any time. What happens next is somebody else's choice. A value: copies go their own ways.
class World {
 public:
  struct Step {
    enum Kind : uint8_t { Deliver, Run, Scan, Begin, Kill, Cut, Refuse, Cancel, GiveUp } kind;
    size_t a = 0, b = 0;
  };

  World(std::shared_ptr<const Graph> graph, Dangers dangers = {}, Faults faults = {});

  /// What could happen now. Empty: it is over. Dangers come last, from `dangers_from` on, and need not happen.
  std::vector<Step> steps(size_t& dangers_from) const;
  void take(Step step);
  std::string show(Step step) const;

  /// What went wrong; empty if nothing did.
  const std::string& violation() const { return violation_; }
  /// When nothing needs to happen any more: what is wrong with the outcome.
  std::string judge() const;

  std::pair<uint64_t, uint64_t> hash() const;

  /// How often each kind of message went from one worker to another, and answers in Grads.
  const std::map<PassKind, int>& messages() const { return messages_; }
  int answers() const { return answers_; }
  /// Of a pass, at its root; null while it has not ended there.
  const Effects::Ending* ending(size_t pass) const;
  size_t active(int worker) const { return workers_[static_cast<size_t>(worker)].passes.active(); }

 private:
  struct Scan {
    PassId pass;
    Snapshot snapshot;
  };
  struct Worker {
    Passes passes;
    bool alive = true;
    std::set<int> sends, recvs;  // pairs it knows of
    std::set<int> peers;
    std::set<int> lost;
    std::vector<Scan> scans;
    std::map<PassId, std::vector<NodeId>> nodes;  // by NodeIndex
  };
  struct Envelope {
    enum Kind : uint8_t { Message, Forward, Lost, Refused } kind;
    int from = 0, to = 0;
    int epoch = 0;
    int pair = 0;  // Forward
    PassMessage message;
  };
  struct Record {  // of a pass
    PassId id;
    bool begun = false, cancelled = false;
    std::set<NodeId> executed;
    std::map<Input, int64_t> values;
    std::set<int> began;                     // workers
    std::map<int, Effects::Ending> endings;  // by worker
    NodeIndex waiting = no_node;             // of the outer pass: goes on when this one is complete
  };

  Worker& at(int worker) { return workers_[static_cast<size_t>(worker)]; }
  const Worker& at(int worker) const { return workers_[static_cast<size_t>(worker)]; }
  Record& record(PassId pass);
  bool brought(int pair, PassId pass) const;
  const Oracle& oracle(const Record& record) const;
  bool can_arrive(const Envelope& envelope) const;
  void post(Envelope envelope);
  void forward(int pair);
  void apply(int worker, Effects&& effects);
  void carry_out(int worker, Effects::Outgoing&& outgoing);
  void ended(int worker, const Effects::Ending& ending);
  Snapshot snapshot(int worker, PassId pass);
  void finish_scan(int worker, size_t index);
  void run(int worker, PassId pass);
  void begin(size_t pass, Effects& out);
  void go_on(int worker, PassId inner, const PassFailure* failure);
  void arrive(size_t index);
  void lose(int worker, int lost_one);
  void refuse(int worker, int refused_by);
  void fail_calls(int worker, const std::vector<int>& pairs, Effects& out);
  std::vector<int> take_dead_calls(int worker, int receiver);
  void forget(int worker, int lost_one);
  void kill(int worker);
  void accuse(const std::string& what);

  std::optional<bool> verdict(const Record& record) const;
  std::string judge(const Record& record, const Graph::Root& root) const;
  std::string judge_failure(const Record& record, const Graph::Root& root, const PassFailure& failure) const;

  std::shared_ptr<const Graph> graph_;
  std::shared_ptr<const std::vector<Oracle>> oracles_;
  std::shared_ptr<const Surroundings> surroundings_;
  Dangers dangers_;
  bool had_loss_ = false;
  std::vector<Worker> workers_;
  std::vector<Envelope> network_;
  std::map<std::pair<int, int>, int> epochs_;  // connections to a peer that a worker has seen end
  std::set<std::pair<int, int>> connected_;    // who has had to do with whom; the smaller one first
  std::set<std::pair<int, int>> refused_;      // likewise: who cannot be connected the next time
  std::vector<Record> records_;
  std::map<int, PassId> made_;  // pairs by hooks, and in which pass
  std::set<int> given_up_;
  std::set<std::pair<int, int>> dead_calls_;  // sender and pair: to one that died, which the sender has not heard of
  std::map<PassKind, int> messages_;
  int answers_ = 0;
  std::string violation_;
};

}  // namespace farad::autograd::explore
