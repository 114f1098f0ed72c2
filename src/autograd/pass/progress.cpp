#include "autograd/pass/progress.h"

namespace farad::autograd {

Progress progress_of(const Pass& pass, base::Rank self) {
  Progress progress;
  progress.pass = pass.id;
  progress.state = pass.state;
  if (pass.state >= PassState::Running) {
    progress.nodes = pass.wave.topology().size();
    progress.fired = progress.nodes - pass.wave.left();
    progress.running = pass.wave.running();
  }
  switch (pass.state) {
    case PassState::Running:
      for (const auto& channel : pass.channels) {
        // What we owe ourselves is among our own nodes.
        if (channel.unanswered > 0 && channel.peer != self) progress.waits_for.push_back(channel.peer);
      }
      break;
    case PassState::Done:
      progress.waits_for = pass.id.root == self ? pass.ballot.awaited() : std::vector{pass.id.root};
      break;
    case PassState::Orphan:
      progress.waits_for = pass.unheard;
      break;
    case PassState::Early:  // for a START, of which nobody knows the sender
    case PassState::Scanning:
    case PassState::Ended:
      break;
  }
  return progress;
}

}  // namespace farad::autograd
