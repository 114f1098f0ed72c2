#include "rpc/operators.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <farad/rref.h>
#include <farad/spawn.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <stdexcept>

namespace shop {

at::Tensor scaled(const at::Tensor& x, double factor) { return x.mul(factor); }
std::tuple<std::string, int> labelled(std::string name, std::optional<int> count) { return {name, count.value_or(-1)}; }
void forget(std::vector<int64_t>) {}
int broken() { throw std::runtime_error("out of stock"); }
farad::Future<int> later(int x) {
  farad::Promise<int> promise;
  promise.set_value(x + 1);
  return promise.future();
}
farad::Future<at::Tensor> later_ones(int64_t n) {
  farad::Promise<at::Tensor> promise;
  promise.set_value(at::ones({n}));
  return promise.future();
}
template <class From, class To>
To converted(From x) {
  return static_cast<To>(x);
}
FARAD_REMOTE(shop::converted<double, bool>)
FARAD_REMOTE(shop::converted<double, int64_t>)
FARAD_REMOTE(shop::later_ones)
FARAD_REMOTE(shop::scaled)
FARAD_REMOTE(shop::labelled)
FARAD_REMOTE(shop::forget)
FARAD_REMOTE(shop::broken)
FARAD_REMOTE(shop::later)

}  // namespace shop

namespace farad {
namespace {

using c10::IValue;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;
using Values = std::vector<IValue>;

/// Runs `fn` on the first of two workers; it calls the second, "worker1".
void on_first_of_two(const std::function<void(Worker&)>& fn, WorkerOptions options = {}) {
  spawn_threads(
      2,
      [&](Worker& worker) {
        if (worker.rank() == 0) fn(worker);
      },
      std::move(options));
}

/// What a worker finds in its environment, for a while.
class OperatorList {
 public:
  explicit OperatorList(const char* list) { ::setenv("FARAD_OPERATORS", list, 1); }
  ~OperatorList() { ::unsetenv("FARAD_OPERATORS"); }
};

bool same(const IValue& got, const at::Tensor& expected) { return at::equal(got.toTensor(), expected); }

/// The message of the Error that calling `name` ends with; fails if it ends otherwise.
std::string error_of(Worker& worker, std::string_view name, Values args) {
  try {
    worker.rpc_sync("worker1", name, std::move(args));
    ADD_FAILURE() << name << " was called";
  } catch (const RemoteError& error) {
    ADD_FAILURE() << name << " ran: " << error.what_without_backtrace();
  } catch (const Error& error) {
    return error.what_without_backtrace();
  }
  return {};
}

TEST(Operators, AddTakesATensorOrAScalarAndHasADefaultForAlpha) {
  on_first_of_two([](Worker& worker) {
    const auto x = at::ones({2});
    EXPECT_TRUE(same(worker.rpc_sync("worker1", "aten::add", {x, x}), at::full({2}, 2.)));
    EXPECT_TRUE(same(worker.rpc_sync("worker1", "aten::add", {x, x, 3}), at::full({2}, 4.)));
    EXPECT_TRUE(same(worker.rpc_sync("worker1", "aten::add", {x, 5}), at::full({2}, 6.)));
    EXPECT_TRUE(same(worker.rpc_sync("worker1", "aten::add", {x, 0.5, 2}), at::full({2}, 2.)));
  });
}

TEST(Operators, WorkOverSharedMemory) {
  on_first_of_two(
      [](Worker& worker) {
        const auto x = at::arange(6.).view({2, 3});
        EXPECT_TRUE(same(worker.rpc_sync("worker1", "aten::matmul", {x, at::eye(3, x.options())}), x));
        EXPECT_THAT(error_of(worker, "aten::matmul", {x}), HasSubstr("\"other\" is missing"));
      },
      {.transport = "shm"});
}

TEST(Operators, FuturesOfThemBecomeReady) {
  on_first_of_two([](Worker& worker) {
    std::vector<Future<IValue>> sums;
    for (int i = 0; i < 10; ++i) sums.push_back(worker.rpc_async("worker1", "aten::add", {at::zeros({1}), i}));
    for (int i = 0; i < 10; ++i) EXPECT_TRUE(same(sums[i].wait(), at::full({1}, static_cast<double>(i))));
    EXPECT_THROW(worker.rpc_async("worker1", "aten::add", {}).wait(), Error);
  });
}

TEST(Operators, SeveralResultsAreATuple) {
  on_first_of_two([](Worker& worker) {
    const auto weight = at::arange(8.).view({4, 2});
    const auto indices = at::arange(4);
    const auto bags = worker.rpc_sync("worker1", "aten::embedding_bag", {weight, indices, at::arange(0, 4, 2)});
    ASSERT_EQ(bags.toTupleRef().size(), 4u);
    EXPECT_TRUE(same(bags.toTupleRef().elements()[0], weight.view({2, 2, 2}).sum(1)));
    const auto largest = worker.rpc_sync("worker1", "aten::max", {weight, 0});
    EXPECT_TRUE(same(largest.toTupleRef().elements()[1], at::full({2}, 3)));
  });
}

TEST(Operators, AnOverloadCanBePickedByItsName) {
  on_first_of_two([](Worker& worker) {
    const auto x = at::ones({2});
    EXPECT_TRUE(same(worker.rpc_sync("worker1", "aten::add.Tensor", {x, x}), at::full({2}, 2.)));
    EXPECT_TRUE(same(worker.rpc_sync("worker1", "aten::add.Scalar", {x, 1}), at::full({2}, 2.)));
    EXPECT_THAT(error_of(worker, "aten::add.Scalar", {x, "x"}),
                AllOf(HasSubstr("\"aten::add.Scalar\""), HasSubstr("(Tensor, str)"), HasSubstr("aten::add.Scalar(")));
    EXPECT_THAT(error_of(worker, "aten::add.Sclar", {x, 1}), AllOf(HasSubstr("no such overload"), HasSubstr("Scalar")));
  });
}

TEST(Operators, ArgumentsAreConvertedAsPythonWould) {
  on_first_of_two([](Worker& worker) {
    const auto x = at::arange(6.).view({2, 3});
    const auto call = [&](std::string_view name, Values args) {
      return worker.rpc_sync("worker1", name, std::move(args));
    };
    EXPECT_TRUE(same(call("aten::sum", {x, 1}), x.sum(1)));  // Dimension 1, not the dtype that has this number.
    EXPECT_TRUE(same(call("aten::sum", {x, std::vector<int64_t>{0, 1}}), x.sum()));
    EXPECT_TRUE(same(call("aten::sum", {x}), x.sum()));
    EXPECT_TRUE(same(call("aten::sum", {x, detail::make_tuple({0, 1})}), x.sum()));
    EXPECT_TRUE(same(call("aten::dropout", {x, 1, true}), at::zeros({2, 3})));  // An int for a float.
    EXPECT_TRUE(same(call("aten::add", {x, true}), x.add(1)));
    EXPECT_TRUE(same(call("aten::transpose", {x, at::zeros({}, at::kLong), 1}), x.t()));
    EXPECT_TRUE(same(call("aten::cat", {std::vector<at::Tensor>{x, x}, 0}), x.repeat({2, 1})));
    const auto rows = detail::make_list(detail::any_type(), {IValue(), at::arange(2)});
    EXPECT_TRUE(same(call("aten::index", {x, rows}), x.slice(1, 0, 2)));
    EXPECT_EQ(call("aten::zeros", {std::vector<int64_t>{2}, c10::kInt, {}, "cpu"}).toTensor().scalar_type(), c10::kInt);
    EXPECT_TRUE(same(call("aten::relu.out", {x, at::zeros({2, 3}, x.options())}), x));
    EXPECT_EQ(call("aten::size", {x, 1}).toInt(), 3);
  });
}

TEST(Operators, ArgumentsThatFitNoOverloadAreNamedBesideTheCandidates) {
  on_first_of_two([](Worker& worker) {
    const auto x = at::ones({2});
    EXPECT_THAT(error_of(worker, "aten::add", {x, "two"}),
                AllOf(HasSubstr("[rpc] operator \"aten::add\""), HasSubstr("(Tensor, str)"),
                      HasSubstr("aten::add.Tensor(Tensor self, Tensor other"), HasSubstr("aten::add.Scalar("),
                      HasSubstr("\"other\" is a Tensor, got str"), HasSubstr("worker1")));
    EXPECT_THAT(error_of(worker, "aten::relu", {x, x}),
                AllOf(HasSubstr("(Tensor, Tensor)"), HasSubstr("takes 1 argument")));
    EXPECT_THAT(error_of(worker, "aten::relu", {}), HasSubstr("\"self\" is missing"));
    EXPECT_TRUE(same(worker.rpc_sync("worker1", "aten::relu", {x}), x));  // The callee goes on.
  });
}

TEST(Operators, UnknownOnesAreNamedBesideSimilarOnes) {
  on_first_of_two([](Worker& worker) {
    EXPECT_THAT(error_of(worker, "aten::matmull", {}),
                AllOf(HasSubstr("aten::matmull"), HasSubstr("mean aten::matmul")));
    EXPECT_THAT(error_of(worker, "nobody::knows", {}), HasSubstr("nobody::knows"));
    EXPECT_THAT(error_of(worker, "", {}), HasSubstr("[rpc]"));
  });
}

TEST(Operators, WhatIsInternalOrTouchesFilesOrStoragesIsRefused) {
  on_first_of_two([](Worker& worker) {
    const auto x = at::ones({2});
    EXPECT_THAT(error_of(worker, "aten::_softmax", {x, 0, false}), HasSubstr("underscore"));
    EXPECT_THAT(error_of(worker, "aten::from_file", {"/etc/hostname", false, 4}), HasSubstr("files or storages"));
    EXPECT_THAT(error_of(worker, "aten::from_file.out", {"/etc/hostname", false, 4}), HasSubstr("files or storages"));
    EXPECT_THAT(error_of(worker, "aten::set_.source_Tensor", {x, x}), HasSubstr("files or storages"));
    EXPECT_THAT(error_of(worker, "aten::record_stream", {x, 0}), HasSubstr("does not travel"));
    EXPECT_THAT(error_of(worker, "prim::device", {x}), HasSubstr("prim::device"));
  });
}

TEST(Operators, AListExtendsAndNarrowsThem) {
  OperatorList list("-aten::mul, aten::_softmax, aten::set_");
  on_first_of_two([](Worker& worker) {
    const auto x = at::zeros({2});
    EXPECT_THAT(error_of(worker, "aten::mul", {x, 2}), HasSubstr("FARAD_OPERATORS forbids it"));
    EXPECT_TRUE(same(worker.rpc_sync("worker1", "aten::_softmax", {x, 0, false}), at::full({2}, 0.5)));
    // Allowed or not, a Storage cannot come along.
    EXPECT_THAT(error_of(worker, "aten::set_.source_Storage", {x, 1}), HasSubstr("does not travel"));
  });
}

TEST(Operators, AListThatIsNoneFailsTheJoin) {
  OperatorList list("mul");
  EXPECT_THAT([] { on_first_of_two([](Worker&) {}); },
              ThrowsMessage<Error>(AllOf(HasSubstr("FARAD_OPERATORS"), HasSubstr("\"mul\""))));
}

TEST(Operators, WhatTheKernelThrowsIsARemoteError) {
  on_first_of_two([](Worker& worker) {
    try {
      worker.rpc_sync("worker1", "aten::matmul", {at::ones({2, 3}), at::ones({2, 3})});
      ADD_FAILURE() << "shapes that do not fit were multiplied";
    } catch (const RemoteError& error) {
      EXPECT_THAT(error.what_without_backtrace(), HasSubstr("worker1 \"aten::matmul\""));
      EXPECT_THAT(error.type(), HasSubstr("c10::Error"));
    }
  });
}

TEST(Operators, TheResultCanStayAtTheCallee) {
  on_first_of_two([](Worker& worker) {
    const auto sum = worker.remote("worker1", "aten::add", {at::ones({2}), 1});
    EXPECT_EQ(sum.owner().name, "worker1");
    EXPECT_TRUE(at::equal(sum.to_here(), at::full({2}, 2.)));
    EXPECT_TRUE(at::equal(worker.remote("worker1", "shop::scaled", {at::ones({2}), 3}).to_here(), at::full({2}, 3.)));
    EXPECT_TRUE(at::equal(worker.remote("worker1", "shop::later_ones", {2}).to_here(), at::ones({2})));
  });
}

TEST(Operators, AReferenceToWhatIsNoTensorFailsAtItsFirstUse) {
  on_first_of_two([](Worker& worker) {
    const auto number = worker.remote("worker1", "shop::later", {1});
    EXPECT_THAT([&] { number.to_here(); }, ThrowsMessage<Error>(HasSubstr("it gives: int")));
    const auto unknown = worker.remote("worker1", "aten::matmull", {});
    EXPECT_THAT([&] { unknown.to_here(); }, ThrowsMessage<Error>(HasSubstr("aten::matmull")));
  });
}

TEST(Operators, TheCalleeChangesItsOwnCopy) {
  on_first_of_two([](Worker& worker) {
    for (const char* to : {"worker0", "worker1"}) {
      const auto x = at::ones({2});
      EXPECT_TRUE(same(worker.rpc_sync(to, "aten::add_", {x, 1}), at::full({2}, 2.)));
      EXPECT_TRUE(at::equal(x, at::ones({2}))) << to;
    }
  });
}

TEST(FunctionsByName, TakeAndGiveTheirOwnTypes) {
  on_first_of_two([](Worker& worker) {
    EXPECT_TRUE(same(worker.rpc_sync("worker1", "shop::scaled", {at::ones({2}), 3}), at::full({2}, 3.)));
    const auto label = worker.rpc_sync("worker1", "shop::labelled", {"box", {}});
    EXPECT_EQ(label.toTupleRef().elements()[0].toStringRef(), "box");
    EXPECT_EQ(label.toTupleRef().elements()[1].toInt(), -1);
    EXPECT_TRUE(worker.rpc_sync("worker1", "shop::forget", {std::vector<int64_t>{1}}).isNone());
    EXPECT_EQ(worker.rpc_sync("worker1", "shop::later", {1}).toInt(), 2);
  });
}

TEST(FunctionsByName, MayBeInstancesOfATemplate) {
  on_first_of_two([](Worker& worker) {
    EXPECT_TRUE(worker.rpc_sync("worker1", "shop::converted<double, bool>", {0.5}).toBool());
    EXPECT_FALSE(worker.rpc_sync("worker1", "shop::converted<double, bool>", {0.}).toBool());
    EXPECT_EQ(worker.rpc_sync("worker1", "shop::converted<double, int64_t>", {2.5}).toInt(), 2)
        << "as it is written, whatever else the compiler calls that type";
  });
}

TEST(FunctionsByName, WrongArgumentsAreNamed) {
  on_first_of_two([](Worker& worker) {
    EXPECT_THAT(error_of(worker, "shop::scaled", {at::ones({2})}),
                AllOf(HasSubstr("\"shop::scaled\""), HasSubstr("takes 2 arguments, got (Tensor)")));
    EXPECT_THAT(error_of(worker, "shop::scaled", {at::ones({2}), "x"}),
                AllOf(HasSubstr("argument 2 (double)"), HasSubstr("expected a float, got str"), HasSubstr("worker1")));
    EXPECT_THAT(error_of(worker, "shop::forget", {std::vector<double>{1}}),
                AllOf(HasSubstr("argument 1"), HasSubstr("element 0: expected an int, got float")));
  });
}

TEST(FunctionsByName, TheirExceptionsAreRemoteErrors) {
  on_first_of_two([](Worker& worker) {
    EXPECT_THAT([&] { worker.rpc_sync("worker1", "shop::broken", {}); },
                ThrowsMessage<RemoteError>(AllOf(HasSubstr("shop::broken"), HasSubstr("out of stock"))));
  });
}

}  // namespace
}  // namespace farad
