// What travels, and that it arrives as a value of its own.

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <farad/fields.h>
#include <farad/worker.h>

#include <array>
#include <limits>

#include "suites/rpc_suite.h"

namespace farad::test {
namespace {

using at::Tensor;

enum class Colour : uint8_t { Red = 1, Blue = 200 };

struct Inner {
  std::string name;
  std::vector<int32_t> numbers;
  FARAD_FIELDS(name, numbers)
  bool operator==(const Inner&) const = default;
};
struct Outer {
  Inner inner;
  std::optional<double> reward;
  std::map<std::string, std::vector<Inner>> groups;
  FARAD_FIELDS(inner, reward, groups)
  bool operator==(const Outer&) const = default;
};
struct Sample {
  Tensor state;
  std::vector<std::pair<int64_t, Tensor>> parts;
  FARAD_FIELDS(state, parts)
};

template <class T>
T echo(T value) {
  return value;
}

/// Whether a value comes back as it went.
template <class T>
void travels(Worker& worker, const T& value) {
  EXPECT_EQ(worker.rpc_sync<echo<T>>("worker1", value), value);
}

RPC_TEST(NumbersTextsAndEnumsTravel) {
  Group group = start(2);

  travels(group[0], true);
  travels<int8_t>(group[0], -128);
  travels<uint8_t>(group[0], 255);
  travels<char>(group[0], 'x');
  travels<int32_t>(group[0], std::numeric_limits<int32_t>::min());
  travels<int64_t>(group[0], std::numeric_limits<int64_t>::min());
  travels<uint64_t>(group[0], std::numeric_limits<uint64_t>::max());
  travels(group[0], 1.5f);
  travels(group[0], -0.1);
  travels(group[0], std::numeric_limits<double>::infinity());
  travels(group[0], std::string("with a \0 zero", 13));
  travels(group[0], std::string());
  travels(group[0], Colour::Blue);
}

RPC_TEST(ContainersTravelToAnyDepth) {
  Group group = start(2);

  travels(group[0], std::vector<int64_t>{1, -2, 3});
  travels(group[0], std::vector<std::string>{});
  travels(group[0], std::vector<bool>{true, false});
  travels(group[0], std::vector<char>(100'000, 'a'));
  travels(group[0], std::array<double, 3>{1, 2, 3});
  travels(group[0], std::map<std::string, int64_t>{{"a", 1}, {"b", 2}});
  travels(group[0], std::unordered_map<int64_t, std::string>{{1, "a"}, {2, "b"}});
  travels(group[0], std::optional<std::optional<int64_t>>{std::optional<int64_t>{}});
  travels(group[0], std::optional<std::optional<int64_t>>{});
  travels(group[0], std::pair<std::string, Colour>{"a", Colour::Red});
  travels(group[0], std::tuple<int64_t, std::string, std::vector<float>>{1, "a", {1.5f}});
  travels(group[0], std::map<std::string, std::vector<std::optional<std::tuple<int64_t, std::array<bool, 2>>>>>{
                        {"a", {std::nullopt, std::tuple<int64_t, std::array<bool, 2>>{1, {true, false}}}}, {"b", {}}});
}

RPC_TEST(StructsThatNameTheirFieldsTravel) {
  Group group = start(2);

  travels(group[0], Outer{});
  travels(group[0], Outer{{"x", {1, 2}}, 0.5, {{"g", {{"y", {}}, {"z", {3}}}}}});
}

RPC_TEST(ScalarsTravelWithTheirKind) {
  Group group = start(2);

  const auto whole = group[0].rpc_sync<echo<c10::Scalar>>("worker1", c10::Scalar(int64_t{7}));
  EXPECT_TRUE(whole.isIntegral(false));
  EXPECT_EQ(whole.toLong(), 7);
  EXPECT_EQ(group[0].rpc_sync<echo<c10::Scalar>>("worker1", 0.5).toDouble(), 0.5);
  EXPECT_TRUE(group[0].rpc_sync<echo<c10::Scalar>>("worker1", true).isBoolean());
}

RPC_TEST(TensorsTravelWithShapeTypeAndRequiresGrad) {
  Group group = start(2);
  const auto same = [&](const Tensor& sent) {
    const Tensor got = group[0].rpc_sync<echo<Tensor>>("worker1", sent);
    EXPECT_EQ(got.sizes(), sent.sizes());
    EXPECT_EQ(got.scalar_type(), sent.scalar_type());
    EXPECT_EQ(got.layout(), sent.layout());
    EXPECT_EQ(got.requires_grad(), sent.requires_grad());
    EXPECT_TRUE(at::equal(got.to_dense().detach(), sent.to_dense().detach()));
  };

  same(at::arange(12).reshape({3, 4}));
  same(at::rand({5}, at::kDouble));
  same(at::rand({5}, at::kComplexFloat));
  same(at::ones({2, 2}, at::kBool));
  same(at::rand({3, 3}).to(at::kHalf));
  same(at::empty({0, 3}));
  same(at::full({}, 3.5));
  same(at::rand({300, 500}));
  same(at::rand({4}).requires_grad_());
  same(at::rand({4, 6}).t());
  same(at::rand({4, 6}).slice(1, 0, 6, 2));
  same(at::rand({1, 3}).expand({4, 3}));
  same(at::eye(4).to_sparse());
  EXPECT_FALSE(group[0].rpc_sync<echo<Tensor>>("worker1", Tensor()).defined());
}

RPC_TEST(TensorsTravelInContainersAndStructs) {
  Group group = start(2);
  const Tensor a = at::rand({3}), b = at::rand({2, 2}), c = at::eye(3).to_sparse();

  const auto got = group[0].rpc_sync<echo<Sample>>("worker1", Sample{a, {{1, b}, {2, c}}});
  const auto named = group[0].rpc_sync<echo<std::map<std::string, std::vector<Tensor>>>>(
      "worker1", std::map<std::string, std::vector<Tensor>>{{"x", {a, b}}, {"y", {}}});

  EXPECT_TRUE(at::equal(got.state, a));
  ASSERT_EQ(got.parts.size(), 2u);
  EXPECT_TRUE(at::equal(got.parts[0].second, b));
  EXPECT_TRUE(at::equal(got.parts[1].second.to_dense(), c.to_dense()));
  EXPECT_TRUE(at::equal(named.at("x")[1], b));
  EXPECT_TRUE(named.at("y").empty());
}

RPC_TEST(ViewDoesNotDragItsStorageAlong) {
  Group group = start(2);
  const Tensor large = at::rand({1000, 1000});

  const auto bytes = group[0].rpc_sync<[](Tensor view) { return static_cast<int64_t>(view.storage().nbytes()); }>(
      "worker1", large[3].slice(0, 10, 20));

  EXPECT_LT(bytes, 1000);
}

static std::array<Tensor, 2> kept;  // Each worker's own: nothing but messages goes between them.

Tensor keep(Tensor given) {
  kept[Worker::current().rank()] = given;
  return given;
}

void fill_kept(double value) { kept[Worker::current().rank()].fill_(value); }
double first_kept() { return kept[Worker::current().rank()].flatten()[0].item<double>(); }

/// Neither end sees what the other does to its tensors.
void share_nothing(Worker& worker, const Peer& to, const Tensor& sent) {
  const double before = sent.flatten()[0].item<double>();
  const Tensor got = worker.rpc_sync<keep>(to, sent);

  worker.rpc_sync<fill_kept>(to, 7);
  EXPECT_EQ(sent.flatten()[0].item<double>(), before);
  EXPECT_EQ(got.flatten()[0].item<double>(), before);
  got.fill_(8);
  EXPECT_EQ(sent.flatten()[0].item<double>(), before);
  EXPECT_EQ(worker.rpc_sync<first_kept>(to), 7);
}

RPC_TEST(CallersAndCalleesShareNoStorage) {
  Group group = start(2);

  for (const int64_t size : {1, 1000, 1'000'000}) {
    share_nothing(group[0], "worker1", at::ones({size}));
    share_nothing(group[0], "worker0", at::ones({size}));
  }
  share_nothing(group[0], "worker1", at::ones({4, 4}).t());
  share_nothing(group[0], "worker0", at::ones({4, 4}).t());
}

RPC_TEST(ArgumentsOfOneCallShareNoStorageEither) {
  Group group = start(2);
  const Tensor both = at::zeros({4});

  for (const char* to : {"worker0", "worker1"}) {
    EXPECT_EQ(group[0].rpc_sync<[](Tensor a, Tensor b) {
      a.fill_(1);
      return b.sum().item<double>();
    }>(to, both, both),
              0)
        << to;
  }
}

RPC_TEST(GraphStaysAtHome) {
  Group group = start(2);
  const Tensor leaf = at::rand({3}).requires_grad_();

  const Tensor got = group[0].rpc_sync<echo<Tensor>>("worker1", leaf * 2);

  EXPECT_TRUE(got.requires_grad());
  EXPECT_TRUE(got.is_leaf());
}

RPC_TEST(LargeTensorsTravelBothWaysAtOnce) {
  Group group = start(2);
  const Tensor large = at::rand({8 << 20});

  group.each([&](Worker& worker) {
    std::vector<Future<Tensor>> replies;
    for (int i = 0; i < 4; ++i) replies.push_back(worker.rpc_async<echo<Tensor>>(1 - worker.rank(), large));
    for (auto& reply : replies) EXPECT_TRUE(at::equal(reply.wait(), large));
  });
}

}  // namespace
}  // namespace farad::test
