// A model that is passed through a call, as a value that names it.

#include <ATen/ATen.h>
#include <farad/error.h>
#include <farad/shared.h>
#include <farad/spawn.h>
#include <farad/worker.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include <memory>
#include <vector>

#include "unit/shared/models.h"

namespace farad::shared {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// At another worker: attaches to the model that it is given, and steps it. Gives it back, as it finds it.
Handle step_it(const Handle& handle) {
  Linear module = linear();
  auto model = Model::attach(handle, module);
  model.step({at::ones({3, 4}), at::ones({3})});
  return model.handle();
}

TEST(SharedHandle, TravelsThroughACallToOneWhoAttaches) {
  spawn_threads(2, [](Worker& worker) {
    if (worker.rank() == 0) {
      Linear module = linear();
      auto model = Model::create(fresh_name(), module, torch::optim::SGDOptions(1));
      const auto handle = model.handle();
      const auto back = worker.rpc_sync<step_it>("worker1", handle);
      EXPECT_EQ(back.name, model.name());
      EXPECT_EQ(back.identity, handle.identity);
      EXPECT_EQ(model.version(), 1u);
      EXPECT_TRUE(at::equal(module->weight, linear()->weight - 1));
    }
    worker.close();
  });
}

TEST(SharedHandle, IsOfNoOtherModelThatComesToHaveTheName) {
  const auto name = fresh_name();
  Linear one = linear(), two = linear(), three = linear();
  auto first = std::make_unique<Model>(Model::create(name, one));
  const auto handle = first->handle();
  first.reset();
  const auto second = Model::create(name, two);
  EXPECT_THAT(message_of<Error>([&] { (void)Model::attach(handle, three); }),
              AllOf(HasSubstr(name), HasSubstr("another one has it now")));
  EXPECT_EQ(Model::attach(second.handle(), three).version(), 0u);
}

TEST(SharedHandle, OfAnotherMachineIsRefusedAtOnce) {
  Linear module = linear(), other = linear();
  const auto model = Model::create(fresh_name(), module);
  auto handle = model.handle();
  handle.machine += "elsewhere";
  EXPECT_THAT(message_of<Error>([&] { (void)Model::attach(handle, other); }),
              AllOf(HasSubstr(model.name()), HasSubstr("another machine")));
}

}  // namespace
}  // namespace farad::shared
