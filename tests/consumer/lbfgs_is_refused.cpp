#include <farad/optim.h>

constexpr auto refused = sizeof(farad::DistributedOptimizer<torch::optim::LBFGS>);
