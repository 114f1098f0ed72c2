// Checkpoints, schedules and loss scales: training that stops and goes on as if it had not.

#include <farad/loss_scale.h>
#include <farad/schedule.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>
#include <thread>

#include "optim/checkpoint.h"
#include "suites/optimizer_twins.h"
#include "temporary_directory.h"

namespace farad::test {
namespace {

using at::Tensor;
using testing::AllOf;
using testing::HasSubstr;
using torch::optim::Adam;
using torch::optim::AdamOptions;
using torch::optim::SGD;
using torch::optim::SGDOptions;
namespace fs = std::filesystem;

Tensor make_leaf(double value) { return at::full({3, 2}, value, at::kDouble).requires_grad_(); }
Tensor value_of(Tensor& parameter) { return parameter.detach(); }

class OptimizerCheckpoints : public RpcSuite {
 protected:
  static void step(Group& group, const Twins& twins, AnyOptimizer& far, int number) {
    Context context(group[0]);
    context.backward({twins.far_loss(Twins::input(number))});
    far.step(context);
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(directory_.path())) {
      if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
    }
    return files;
  }
  /// Of each file, by name.
  std::map<std::string, std::string> contents() const {
    std::map<std::string, std::string> contents;
    for (const auto& entry : fs::directory_iterator(directory_.path())) {
      if (!entry.is_regular_file()) continue;
      std::stringstream text;
      text << std::ifstream(entry.path(), std::ios::binary).rdbuf();
      contents.emplace(entry.path().filename(), text.str());
    }
    return contents;
  }

  const TemporaryDirectory directory_;
};

TEST_P(OptimizerCheckpoints, TrainingGoesOnElsewhereAsIfItHadNotStopped) {
  {
    Group group = start(3);
    const Twins twins(group, {1, 2});
    DistributedOptimizer<Adam> far(group[0], twins.far(), AdamOptions(0.02));
    for (int i = 0; i < 3; i++) step(group, twins, far, i);
    far.set_lr(0.01);
    far.save(directory_.path());
  }
  Group group = start(4);
  const Twins twins(group, {3, 0});  // other owners, another number of workers
  DistributedOptimizer<Adam> far(group[0], twins.far(), AdamOptions(0.02));
  far.load(directory_.path());
  EXPECT_EQ(far.lr(), 0.01);
  for (int i = 3; i < 5; i++) step(group, twins, far, i);

  Adam near(twins.near(), AdamOptions(0.02));
  for (int i = 0; i < 5; i++) {
    if (i == 3) near.param_groups()[0].options().set_lr(0.01);
    near.zero_grad();
    twins.near_loss(Twins::input(i)).backward();
    near.step();
  }
  twins.expect_equal();
}

TEST_P(OptimizerCheckpoints, NewOneReplacesTheOldAndLeavesNothingOfIt) {
  Group group = start(3);
  const Twins twins(group, {1, 2});
  DistributedOptimizer<SGD> far(group[0], twins.far(), SGDOptions(0.05).momentum(0.9));
  far.save(directory_.path());
  const auto first = files();
  step(group, twins, far, 0);
  far.save(directory_.path());
  const auto second = files();
  EXPECT_EQ(second.size(), first.size());
  for (const auto& file : first) EXPECT_FALSE(fs::exists(file));
  const auto values = twins.far_values();
  step(group, twins, far, 1);
  far.load(directory_.path());
  const auto loaded = twins.far_values();
  for (size_t i = 0; i < values.size(); i++) EXPECT_TRUE(at::equal(loaded[i], values[i]));
}

TEST_P(OptimizerCheckpoints, FailedSaveLeavesNothingOfItself) {
  Group group = start(2);
  const Twins twins(group, {1});
  DistributedOptimizer<SGD> far(group[0], twins.far(), SGDOptions(0.05));
  const auto in_the_way = directory_.file("manifest.json.new");
  fs::create_directories(in_the_way + "/not empty");
  EXPECT_THAT(message_of<Error>([&] { far.save(directory_.path()); }),
              AllOf(HasSubstr(directory_.path()), HasSubstr("was not saved"), HasSubstr("manifest.json.new: open")));
  for (const auto& entry : fs::directory_iterator(directory_.path())) EXPECT_EQ(entry.path(), in_the_way);
  fs::remove_all(in_the_way);
  EXPECT_NO_THROW(far.save(directory_.path()));
}

TEST_P(OptimizerCheckpoints, WhereAnOwnerIsLostTheOldOneStays) {
  {
    Group group = start(3);
    const Twins twins(group, {1, 2});
    DistributedOptimizer<SGD> far(group[0], twins.far(), SGDOptions(0.05));
    far.save(directory_.path());
    const auto before = files();
    step(group, twins, far, 0);
    group.drop(2);
    for (int i = 0; i < 2; i++) {  // The second time as well: it is not stuck in the first.
      EXPECT_THAT(message_of<PeerLost>([&] { far.save(directory_.path()); }),
                  AllOf(HasSubstr("was not saved"), HasSubstr("worker2")));
    }
    EXPECT_EQ(files(), before);
  }
  Group group = start(3);
  const Twins twins(group, {2, 1});
  DistributedOptimizer<SGD> far(group[0], twins.far(), SGDOptions(0.05));
  step(group, twins, far, 0);
  far.load(directory_.path());
  twins.expect_equal();
}

TEST_P(OptimizerCheckpoints, DamagedOnesAreRefusedByNameAndChangeNothing) {
  Group group = start(3);
  const Twins twins(group, {1, 2});
  DistributedOptimizer<SGD> far(group[0], twins.far(), SGDOptions(0.05));
  EXPECT_THAT(message_of<Error>([&] { far.load(directory_.path()); }), HasSubstr("manifest.json"));
  far.save(directory_.path());
  step(group, twins, far, 0);
  const auto values = twins.far_values();
  const auto expect_refusal = [&](const std::string& name, const std::string& why) {
    EXPECT_THAT(message_of<Error>([&] { far.load(directory_.path()); }), AllOf(HasSubstr(name), HasSubstr(why)));
    const auto now = twins.far_values();
    for (size_t i = 0; i < values.size(); i++) EXPECT_TRUE(at::equal(now[i], values[i]));
  };
  const auto victim = files().front();
  const auto aside = fs::path(directory_.path()) / "aside";
  fs::copy_file(victim, aside);

  fs::resize_file(victim, fs::file_size(victim) - 1);
  expect_refusal(victim.filename(), "torn");
  fs::remove(victim);
  expect_refusal(victim.filename(), "No such file");
  fs::copy_file(aside, victim);
  {
    std::fstream file(victim, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-3, std::ios::end);
    file.put('x');
  }
  expect_refusal(victim.filename(), "changed");
  fs::copy_file(aside, victim, fs::copy_options::overwrite_existing);

  const auto manifest = fs::path(directory_.path()) / "manifest.json";
  std::stringstream text;
  text << std::ifstream(manifest).rdbuf();
  auto edited = text.str();
  edited.replace(edited.find("0.05"), 4, "0.07");
  std::ofstream(manifest) << edited;
  expect_refusal("manifest.json", "changed");
  std::ofstream(manifest) << "{\"name\": \"another program's\"}";
  expect_refusal("manifest.json", "not the manifest");
  std::ofstream(manifest) << text.str();
  EXPECT_NO_THROW(far.load(directory_.path()));
}

TEST_P(OptimizerCheckpoints, OnesOfAnotherOptimizerAreRefusedByWhatDiffers) {
  Group group = start(2);
  auto& worker = group[0];
  const auto one = worker.remote<make_leaf>("worker1", 1.0), other = worker.remote<make_leaf>("worker1", 2.0);
  DistributedOptimizer<SGD>(worker, {one}, SGDOptions(0.1)).save(directory_.path());
  const auto refusal = [&](AnyOptimizer&& optimizer) {
    return message_of<Error>([&] { optimizer.load(directory_.path()); });
  };
  EXPECT_THAT(refusal(DistributedOptimizer<Adam>(worker, {one}, AdamOptions(0.1))), HasSubstr("SGD"));
  EXPECT_THAT(refusal(DistributedOptimizer<SGD>(worker, {one, other}, SGDOptions(0.1))), HasSubstr("1 parameters"));
  EXPECT_THAT(refusal(DistributedOptimizer<SGD>(worker, {one}, SGDOptions(0.1).momentum(0.5))), HasSubstr("momentum"));
}

TEST_P(OptimizerCheckpoints, DirectoryOfAnotherTrainingIsNotSavedInto) {
  Group group = start(2);
  auto& worker = group[0];
  const auto one = worker.remote<make_leaf>("worker1", 1.0), other = worker.remote<make_leaf>("worker1", 2.0);
  DistributedOptimizer<SGD> sgd(worker, {one}, SGDOptions(0.1));
  sgd.save(directory_.path());
  const auto before = contents();
  const auto refusal = [&](AnyOptimizer&& optimizer) {
    const auto message = message_of<Error>([&] { optimizer.save(directory_.path()); });
    EXPECT_EQ(contents(), before);
    return message;
  };
  EXPECT_THAT(refusal(DistributedOptimizer<Adam>(worker, {one}, AdamOptions(0.1))),
              AllOf(HasSubstr("was not saved"), HasSubstr("SGD of 1"), HasSubstr("not of Adam of 1")));
  EXPECT_THAT(refusal(DistributedOptimizer<SGD>(worker, {one, other}, SGDOptions(0.1))), HasSubstr("not of SGD of 2"));
  EXPECT_NO_THROW(DistributedOptimizer<SGD>(worker, {other}, SGDOptions(0.2).momentum(0.9)).save(directory_.path()));
}

TEST_P(OptimizerCheckpoints, ManifestThatIsNotOursIsNotReplaced) {
  Group group = start(2);
  const auto one = group[0].remote<make_leaf>("worker1", 1.0);
  DistributedOptimizer<SGD> sgd(group[0], {one}, SGDOptions(0.1));
  sgd.save(directory_.path());
  const auto manifest = directory_.file("manifest.json");
  auto newer = contents().at("manifest.json");
  newer.replace(newer.find("\"version\": 1"), 12, "\"version\": 2");
  const std::pair<std::string, const char*> foreign[] = {{newer, "version 2"},
                                                         {"{\"name\": \"x\"}", "not the manifest"}};
  for (const auto& [text, why] : foreign) {
    std::ofstream(manifest) << text;
    const auto before = contents();
    EXPECT_THAT(message_of<Error>([&] { sgd.save(directory_.path()); }),
                AllOf(HasSubstr("was not saved"), HasSubstr("manifest.json"), HasSubstr(why)));
    EXPECT_EQ(contents(), before);
  }
}

TEST_P(OptimizerCheckpoints, FilesWithoutAManifestAreNotWrittenOver) {
  Group group = start(2);
  const auto one = group[0].remote<make_leaf>("worker1", 1.0);
  DistributedOptimizer<SGD> sgd(group[0], {one}, SGDOptions(0.1));
  std::ofstream(directory_.file("00000001-0.safetensors")) << "one";
  std::ofstream(directory_.file("00000007-0.safetensors")) << "seven";
  const auto before = contents();
  fs::create_directories(directory_.file("manifest.json.new") + "/not empty");  // so that it fails at the end
  EXPECT_THAT(message_of<Error>([&] { sgd.save(directory_.path()); }), HasSubstr("was not saved"));
  EXPECT_EQ(contents(), before);
  fs::remove_all(directory_.file("manifest.json.new"));
  sgd.save(directory_.path());
  EXPECT_THAT(files(), testing::ElementsAre(directory_.file("00000008-0.safetensors")));
  EXPECT_NO_THROW(sgd.load(directory_.path()));
}

TEST_P(OptimizerCheckpoints, SavesIntoADirectoryThatHasToBeMade) {
  Group group = start(2);
  const auto one = group[0].remote<make_leaf>("worker1", 1.0);
  DistributedOptimizer<SGD> sgd(group[0], {one}, SGDOptions(0.1));
  for (const auto* name : {"a/b/c", "d/", "e"}) {
    sgd.save(directory_.file(name));
    EXPECT_NO_THROW(sgd.load(directory_.file(name))) << name;
  }
}

TEST_P(OptimizerCheckpoints, ParametersThatAnotherOptimizerStepsAreSavedBetweenTwoSteps) {
  Group group = start(3);
  auto& worker = group[0];
  const auto one = worker.remote<make_leaf>("worker1", 0.0), other = worker.remote<make_leaf>("worker2", 0.0);
  std::atomic<bool> done = false;
  std::thread training([&] {
    DistributedOptimizer<SGD> optimizer(worker, {one, other}, SGDOptions(1));
    while (!done) {
      Context context(worker);
      context.backward({one.to_here().sum() + other.to_here().sum()});
      optimizer.step(context);
    }
  });
  constexpr int count = 12;
  DistributedOptimizer<SGD> optimizer(worker, {one, other}, SGDOptions(1));
  for (int i = 0; i < count; i++) optimizer.save(directory_.file(std::to_string(i)));
  done = true;
  training.join();
  Tensor last = make_leaf(1).detach();
  bool moved = false;
  for (int i = 0; i < count; i++) {
    optimizer.load(directory_.file(std::to_string(i)));
    const auto value = one.rpc_sync<value_of>();
    EXPECT_TRUE(at::equal(value, other.rpc_sync<value_of>())) << value << other.rpc_sync<value_of>();
    moved = moved || (i > 0 && !at::equal(value, last));
    last = value;
  }
  EXPECT_TRUE(moved) << "nobody stepped them meanwhile";
}

TEST_P(OptimizerCheckpoints, DirectoryThatSomebodySavesIntoIsNotSavedInto) {
  Group group = start(2);
  const auto one = group[0].remote<make_leaf>("worker1", 1.0);
  DistributedOptimizer<SGD> sgd(group[0], {one}, SGDOptions(0.1));
  sgd.save(directory_.path());
  const auto before = contents();
  {
    optim::CheckpointWriter somebody(directory_.path());
    ASSERT_TRUE(somebody.begin({{{detail::settings_of(SGDOptions(0.1)), 1}}}).ok());
    EXPECT_THAT(message_of<Error>([&] { sgd.save(directory_.path()); }),
                AllOf(HasSubstr("was not saved"), HasSubstr(directory_.path()), HasSubstr("right now")));
    EXPECT_EQ(contents(), before);
    EXPECT_NO_THROW(sgd.load(directory_.path()));
  }
  EXPECT_NO_THROW(sgd.save(directory_.path()));
}

TEST_P(OptimizerCheckpoints, ScheduleSetsTheRateOfEveryGroup) {
  Group group = start(2);
  auto& worker = group[0];
  const auto one = worker.remote<make_leaf>("worker1", 1.0), other = worker.remote<make_leaf>("worker1", 2.0);
  using Far = DistributedOptimizer<SGD>;
  Far far(worker, std::vector<Far::Group>{{{one}, SGDOptions(1)}, {{other}, SGDOptions(0.1)}});
  Schedule schedule(far, linear_warm_up(2, 0.5, step_decay(1, 0.1)));
  std::vector<double> rates;
  for (int i = 0; i < 5; i++, schedule.step()) {
    EXPECT_DOUBLE_EQ(far.lr(1), 0.1 * far.lr(0));
    rates.push_back(far.lr());
  }
  EXPECT_THAT(rates, testing::ElementsAre(0.5, 0.75, 1, testing::DoubleEq(0.1), testing::DoubleNear(0.01, 1e-15)));
  schedule.resume(1);
  EXPECT_EQ(far.lr(), 0.75);
  Schedule by_a_function(far, [](int64_t steps) { return 1 / (1.0 + static_cast<double>(steps)); });
  by_a_function.resume(3);
  EXPECT_DOUBLE_EQ(far.lr(0), 0.25);  // Of the rate of the options, not of what the other one has made of it.
  EXPECT_DOUBLE_EQ(far.lr(1), 0.025);
  far.set_lr(1, 0.2);
  by_a_function.resume(1);
  EXPECT_DOUBLE_EQ(far.lr(0), 0.5);
  EXPECT_DOUBLE_EQ(far.lr(1), 0.1) << "set by hand, it goes from there";

  const auto cosine = cosine_decay(4, 0.2);
  EXPECT_DOUBLE_EQ(cosine(0), 1);
  EXPECT_DOUBLE_EQ(cosine(2), 0.6);
  EXPECT_DOUBLE_EQ(cosine(9), 0.2);
}

TEST_P(OptimizerCheckpoints, ScheduleThatIsMadeAfterLoadingGoesFromTheRateOfTheOptions) {
  Group group = start(2);
  const auto one = group[0].remote<make_leaf>("worker1", 1.0);
  {
    DistributedOptimizer<SGD> far(group[0], {one}, SGDOptions(0.8));
    Schedule schedule(far, cosine_decay(1000));
    schedule.resume(500);
    far.save(directory_.path());
  }
  DistributedOptimizer<SGD> far(group[0], {one}, SGDOptions(0.8));
  far.load(directory_.path());
  EXPECT_DOUBLE_EQ(far.lr(), 0.4);
  Schedule schedule(far, cosine_decay(1000));
  schedule.resume(500);
  EXPECT_DOUBLE_EQ(far.lr(), 0.4);
}

TEST_P(OptimizerCheckpoints, StepWithAGradientThatIsNotFiniteIsSkippedEverywhere) {
  Group group = start(3);
  auto& worker = group[0];
  const auto one = worker.remote<make_leaf>("worker1", 1.0), other = worker.remote<make_leaf>("worker2", 2.0);
  DistributedOptimizer<SGD> far(worker, {one, other}, SGDOptions(1));
  LossScale scale({.value = 1024, .patience = 2});
  const auto train = [&](double factor) {
    Context context(worker);
    context.backward({scale.apply(one.to_here().sum() + other.to_here().sum() * factor)});
    return scale.step(far, context);
  };
  EXPECT_FALSE(train(std::numeric_limits<double>::infinity()));
  EXPECT_EQ(scale.value(), 512);
  EXPECT_FALSE(train(std::numeric_limits<double>::quiet_NaN()));
  EXPECT_EQ(scale.value(), 256);
  EXPECT_TRUE(at::equal(one.rpc_sync<value_of>(), make_leaf(1).detach()));
  EXPECT_TRUE(train(1));
  EXPECT_TRUE(at::equal(one.rpc_sync<value_of>(), make_leaf(0).detach()));
  EXPECT_TRUE(at::equal(other.rpc_sync<value_of>(), make_leaf(1).detach()));
  EXPECT_TRUE(train(1));
  EXPECT_EQ(scale.value(), 512) << "after two good steps";
}

INSTANTIATE_TEST_SUITE_P(Each, OptimizerCheckpoints, testing::Values("local", "shm", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace farad::test
