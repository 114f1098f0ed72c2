// What a World may look like when nothing moves any more.

#include <algorithm>
#include <optional>

#include "explore/world.h"

namespace farad::autograd::explore {

std::string World::judge() const {
  if (!violation_.empty()) return violation_;
  for (size_t i = 0; i < records_.size(); ++i) {
    if (!records_[i].begun) continue;
    auto wrong = judge(records_[i], graph_->roots[i]);
    if (wrong.empty() && graph_->roots[i].outer >= 0) {
      const auto inner = verdict(records_[i]), outer = verdict(records_[static_cast<size_t>(graph_->roots[i].outer)]);
      if (inner && outer && *inner != *outer) wrong = "its verdict is not that of the pass around it";
    }
    if (!wrong.empty()) return "pass " + std::to_string(i) + ": " + wrong;
  }
  return {};
}

/// Of those who are alive; none if nobody of them took part.
std::optional<bool> World::verdict(const Record& record) const {
  for (const auto& [worker, ending] : record.endings) {
    if (at(worker).alive) return ending.committed;
  }
  return {};
}

std::string World::judge(const Record& record, const Graph::Root& root) const {
  std::optional<bool> committed;
  for (const int worker : record.began) {
    if (!at(worker).alive) continue;
    const auto ending = record.endings.find(worker);
    if (ending == record.endings.end()) return "never ended at worker " + std::to_string(worker);
    if (committed && *committed != ending->second.committed) return "committed at some and dropped at others";
    committed = ending->second.committed;
  }
  if (!committed) return {};  // Nobody is left who took part.
  const auto& wanted = oracle(record);
  if (*committed) {
    if (record.executed != wanted.nodes) return "committed, and not all has run";
    for (const auto& [input, paths] : wanted.paths) {
      const auto value = record.values.find(input);
      if (value == record.values.end() || value->second != paths) {
        return "a wrong gradient at node " + std::to_string(input.first) + " input " + std::to_string(input.second);
      }
    }
    const auto enters_lost = [&](int pair) {
      return graph_->pairs[static_cast<size_t>(pair)].sender == graph_->lost_before;
    };
    if (std::any_of(wanted.recvs.begin(), wanted.recvs.end(), enters_lost))
      return "committed without a lost worker's part";
    return {};
  }
  if (had_loss_ || record.cancelled || !at(root.worker).alive) return {};
  if (root.outer >= 0) return {};  // The one around it says why.
  return judge_failure(record, root, record.endings.at(root.worker).failure);
}

std::string World::judge_failure(const Record& record, const Graph::Root& root, const PassFailure& failure) const {
  const auto& wanted = oracle(record);
  const std::string said = " (" + failure.what + ")";
  if (failure.code == base::Code::PeerLost && failure.culprit.value == graph_->lost_before) {
    const auto enters_lost = [&](int pair) {
      return graph_->pairs[static_cast<size_t>(pair)].sender == graph_->lost_before;
    };
    if (std::any_of(wanted.recvs.begin(), wanted.recvs.end(), enters_lost)) return {};
    return "failed for a lost worker that no gradient had to go to" + said;
  }
  if (failure.code == base::Code::RemoteError) {
    for (const auto& oracle : *oracles_) {  // of this pass, or of one that it began
      if (&oracle != &wanted && graph_->roots[static_cast<size_t>(&oracle - oracles_->data())].outer < 0) continue;
      for (const auto id : oracle.nodes) {
        if (graph_->nodes[id].throws && graph_->nodes[id].worker == failure.culprit.value) return {};
      }
    }
  }
  if (root.fast && failure.code == base::Code::Invalid) {
    const auto begin = failure.what.find('<');
    if (begin == std::string::npos) return "FAST failed without naming a call" + said;
    const int pair = std::stoi(failure.what.substr(begin + 1));
    if (graph_->pairs[static_cast<size_t>(pair)].gradient) return "FAST named a gradient of another pass" + said;
    if (!wanted.uses(pair)) return {};
    return "FAST named a call that is used" + said;
  }
  return "failed without a cause" + said;
}

std::string World::show(Step step) const {
  const auto worker = [](auto n) { return "worker " + std::to_string(n); };
  switch (step.kind) {
    case Step::Deliver: {
      const auto& e = network_[step.a];
      if (e.kind == Envelope::Lost) return worker(e.to) + " hears that " + worker(e.from) + " is lost";
      if (e.kind == Envelope::Refused) return worker(e.to) + " hears that there is no way to " + worker(e.from);
      const auto what = e.kind == Envelope::Forward ? "call " + std::to_string(e.pair) : to_string(e.message.kind);
      auto text = (e.kind == Envelope::Forward ? ""
                                               : "pass " + std::to_string(e.message.pass.number) + " of " +
                                                     std::to_string(e.message.pass.root.value) + ": ") +
                  what + " from " + worker(e.from) + " arrives at " + worker(e.to);
      for (const auto& answer : e.message.answers)
        text += " <" + std::to_string(answer.pair.value & 0xffffffff) + ">" + (answer.tensors ? "" : "null");
      return text;
    }
    case Step::Run:
      return worker(step.a) + " runs a node of pass " + std::to_string(step.b);
    case Step::Scan:
      return worker(step.a) + " has scanned";
    case Step::Begin:
      return "pass " + std::to_string(step.a) + " begins";
    case Step::Kill:
      return worker(step.a) + " dies";
    case Step::Cut:
      return worker(step.a) + " and " + worker(step.b) + " are cut off";
    case Step::Refuse:
      return worker(step.a) + " and " + worker(step.b) + " cannot be connected the first time";
    case Step::Cancel:
      return "pass " + std::to_string(step.a) + " is cancelled";
    case Step::GiveUp:
      return "call " + std::to_string(network_[step.a].pair) + " is given up";
  }
  return {};
}

}  // namespace farad::autograd::explore
