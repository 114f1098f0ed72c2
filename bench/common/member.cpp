#include "common/member.h"

namespace farad::bench {

Worker join(const Words& words, int rank, int size) {
  WorkerOptions options;
  options.rank = rank;
  options.size = size;
  options.rendezvous = words[0];
  options.transport = words[1];
  return Worker::join(options);
}

}  // namespace farad::bench
