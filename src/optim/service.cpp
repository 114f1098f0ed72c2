#include "optim/service.h"

#include <utility>

namespace farad::optim {

Service::Service(autograd::Service& gradients, base::Rank self, uint64_t birth, Ledger::Services services)
    : gradients_(gradients),
      self_(self),
      later_(services.later),
      next_(autograd::first_number(birth)),
      ledger_(std::move(services)) {}

uint64_t Service::new_optimizer() { return autograd::make_id(self_, next_++); }

}  // namespace farad::optim
