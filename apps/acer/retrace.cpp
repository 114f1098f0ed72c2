#include "acer/retrace.h"

#include <algorithm>

namespace farad::acer {

void retrace(const Trace& trace, double discount, std::span<double> targets) {
  double ahead = trace.after;
  for (size_t i = trace.rewards.size(); i-- > 0;) {
    targets[i] = trace.rewards[i] + discount * ahead;
    ahead = std::min(1.0, trace.ratios[i]) * (targets[i] - trace.q[i]) + trace.values[i];
  }
}

}  // namespace farad::acer
