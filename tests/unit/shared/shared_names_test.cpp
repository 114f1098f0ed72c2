// How models in shared memory are found by their names, and by whom.

#include <ATen/ATen.h>
#include <farad/error.h>
#include <farad/shared.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/optim/adam.h>
#include <torch/version.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "unit/shared/models.h"

namespace farad::shared {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;

TEST(SharedNames, AreTakenOnceAndFoundOnlyWhileSomebodyHasThem) {
  const auto name = fresh_name();
  Linear module = linear(), other = linear();
  {
    const auto model = Model::create(name, module);
    EXPECT_THAT(message_of<Error>([&] { Model::create(name, other); }), HasSubstr(name));
  }
  EXPECT_THAT(message_of<Timeout>([&] { Model::attach(name, other, {.patience = 20ms}); }), HasSubstr(name));
  EXPECT_NO_THROW(Model::create(name, other)) << "it is free again";
}

/// Of the socket by which a model of that name is found.
std::pair<sockaddr_un, socklen_t> address_of(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  ("farad-model:" + name).copy(address.sun_path + 1, sizeof address.sun_path - 1);
  return {address,
          static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + sizeof "farad-model:" - 1 + name.size())};
}

/// Has the name of a model and never answers, like one that is stopped.
base::Fd silent_holder(const std::string& name, int backlog) {
  base::Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto address = address_of(name);
  EXPECT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address.first), address.second), 0);
  EXPECT_EQ(::listen(socket.get(), backlog), 0);
  return socket;
}

TEST(SharedNames, WhoAttachesWaitsNoLongerThanItsPatienceForOneThatDoesNotAnswer) {
  const auto name = fresh_name();
  Linear module = linear();
  const auto attach = [&] { Model::attach(name, module, {.patience = 20ms}); };
  {
    const auto holder = silent_holder(name, 8);
    const auto start = std::chrono::steady_clock::now();
    EXPECT_THAT(message_of<Timeout>(attach), AllOf(HasSubstr(name), HasSubstr("did not answer")));
    EXPECT_LT(std::chrono::steady_clock::now() - start, 5s) << "which is how long it waited whatever its patience";
  }
  const auto holder = silent_holder(name, 0);
  std::vector<base::Fd> queued;  // As many as may ask at once.
  const auto address = address_of(name);
  do {
    queued.emplace_back(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  } while (::connect(queued.back().get(), reinterpret_cast<const sockaddr*>(&address.first), address.second) == 0);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_THAT(message_of<Timeout>(attach), HasSubstr(name));
}

TEST(SharedNames, GoOverToAnotherHolder) {
  const auto name = fresh_name();
  Linear one = linear(), two = linear(), three = linear();
  auto first = std::make_unique<Model>(Model::create(name, one));
  auto second = Model::attach(name, two);
  first.reset();
  auto third = Model::attach(name, three);
  set_gradients(two, 0);
  second.step();
  expect_equal(two, three);
}

TEST(SharedNames, AnotherModuleIsRefusedWithWhatDiffers) {
  const auto name = fresh_name();
  Linear module = linear();
  const auto model = Model::create(name, module, torch::optim::AdamOptions(0.1));
  Linear larger(5, 3), doubles = linear();
  doubles->to(at::kDouble);
  torch::nn::BatchNorm1d normal(4);
  EXPECT_THAT(message_of<Error>([&] { Model::attach(name, larger); }), AllOf(HasSubstr("[3, 5]"), HasSubstr("[3, 4]")));
  EXPECT_THAT(message_of<Error>([&] { Model::attach(name, doubles); }), AllOf(HasSubstr("Double"), HasSubstr("Float")));
  EXPECT_THAT(message_of<Error>([&] { Model::attach(name, normal); }), AllOf(HasSubstr("weight"), HasSubstr("[4]")));
}

TEST(SharedNames, AnotherVersionOfLibtorchIsRefusedWithBoth) {
  const auto name = fresh_name();
  Linear module = linear(), other = linear();
  const auto model = Model::create(name, module);
  const auto segment = segment_of(name);
  const std::string ours = "libtorch " TORCH_VERSION;
  auto theirs = ours;
  theirs.back() = theirs.back() == '9' ? '8' : '9';
  char* const begin = reinterpret_cast<char*>(&segment->header());
  char* const line = std::search(begin, segment->values(), ours.begin(), ours.end());
  ASSERT_NE(line, segment->values());
  std::copy(theirs.begin(), theirs.end(), line);
  EXPECT_THAT(message_of<Error>([&] { Model::attach(name, other); }), AllOf(HasSubstr(ours), HasSubstr(theirs)));
  expect_equal(other, linear());
}

TEST(SharedNames, AnotherVersionOfFaradIsRefusedWithBoth) {
  const auto name = fresh_name();
  Linear module = linear(), other = linear();
  const auto model = Model::create(name, module);
  const auto segment = segment_of(name);
  const auto ours = segment->header().format++;
  EXPECT_THAT(message_of<Error>([&] { Model::attach(name, other); }),
              AllOf(HasSubstr("another version of farad"), HasSubstr("format " + std::to_string(ours)),
                    HasSubstr("format " + std::to_string(ours + 1))));
}

}  // namespace
}  // namespace farad::shared
