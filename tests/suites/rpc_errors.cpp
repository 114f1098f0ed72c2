// What goes wrong where a call runs, and what its caller learns of it.

#include <ATen/Functions.h>
#include <farad/rref.h>
#include <farad/worker.h>

#include <cstdlib>
#include <stdexcept>

#include "rpc/protocol.h"
#include "suites/rpc_suite.h"
#include "worker_core.h"

namespace farad::test {

/// Travels, and cannot be read.
struct Unreadable {};

}  // namespace farad::test

template <>
struct farad::detail::Codec<farad::test::Unreadable> {
  static void write(Writer& out, const test::Unreadable&) { out.boolean(true); }
  static bool read(Reader& in, test::Unreadable&) { return in.fail("not today"); }
};

namespace farad::test {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

int64_t fails(int64_t) { throw std::invalid_argument("no such file"); }
int64_t relays_failure(int64_t x) { return Worker::current().rpc_sync<fails>("worker2", x); }
int64_t relays_twice(int64_t x) { return Worker::current().rpc_sync<relays_failure>("worker1", x); }
Future<int64_t> fails_later() { return Worker::current().rpc_async<fails>("worker2", 1); }
int64_t add_one(int64_t x) { return x + 1; }
int64_t add_one_to(int64_t& x) { return x + 1; }
Unreadable same(const Unreadable& x) { return x; }

template <class F>
RemoteError remote_error_of(F act) {
  try {
    act();
  } catch (const RemoteError& error) {
    return error;
  }
  ADD_FAILURE() << "no RemoteError";
  return RemoteError("none");
}

RPC_TEST(ExceptionArrivesWithItsTypeAndText) {
  Group group = start(2);

  for (int i = 0; i < 2; ++i) {
    const auto error = remote_error_of(
        [&] { i == 0 ? group[0].rpc_sync<fails>("worker1", 1) : group[0].rpc_async<fails>("worker1", 1).wait(); });
    EXPECT_EQ(error.type(), "std::invalid_argument");
    EXPECT_EQ(error.text(), "no such file");
    EXPECT_THAT(error.hops(), ElementsAre("worker0", AllOf(HasSubstr("worker1 \""), HasSubstr("fails"))));
    EXPECT_THAT(error.what_without_backtrace(), HasSubstr("no such file"));
  }
  EXPECT_EQ(group[0].rpc_sync<add_one>("worker1", 1), 2) << "the callee goes on";
}

Future<int64_t> returns_no_future() { return {}; }

RPC_TEST(FunctionThatReturnsAFutureOfNothingFailsItsCallAndNothingElse) {
  Group group = start(2);

  EXPECT_THAT(remote_error_of([&] { group[0].rpc_sync<returns_no_future>("worker1"); }).text(),
              AllOf(HasSubstr("returns_no_future"), HasSubstr("default-constructed")));
  EXPECT_EQ(group[0].rpc_sync<add_one>("worker1", 1), 2) << "the callee goes on";
}

int64_t elements_of(at::Tensor tensor) { return tensor.numel(); }

/// Makes a value at worker1 by a message that the test has its hands on, which is nobody's call.
struct RemoteCallByHand : testing::Test {
  ~RemoteCallByHand() override {
    for (int rank : {0, 1}) group.drop(rank);  // close() would wait for another call.
  }
  wire::Message call() {
    detail::Packet arguments;
    detail::Writer out(arguments.body, arguments.tensors);
    detail::write_each(out, std::tuple(at::zeros({2})));
    (void)&detail::RemoteKept<elements_of>::known;
    rpc::CallHeader header;
    header.function = detail::RemoteKept<elements_of>::function.id;
    header.makes = handle->id;
    return rpc::encode_call(number, header, std::move(arguments));
  }
  void post(wire::Message message) {
    ASSERT_TRUE(core.agent().fabric().post(base::Rank(1), std::move(message)).status.ok());
  }
  std::string error_of_use() {
    core.table().confirm(handle);
    return remote_error_of([&] { RRef<int64_t>(handle).to_here(); }).text();
  }

  static constexpr uint64_t number = 1;
  Group group{"local", 2};
  detail::WorkerCore& core = detail::WorkerCore::of(group[0]);
  std::shared_ptr<detail::RefHandle> handle = core.table().begin(base::Rank(1), "elements_of");
};

// The way it is for a tensor of a device that the callee does not have.
TEST_F(RemoteCallByHand, ThatCannotBeRunSaysWhyToThoseWhoUseItsValue) {
  auto message = call();
  message.devices = {c10::Device(c10::kCUDA, 100)};
  post(std::move(message));

  EXPECT_THAT(error_of_use(), HasSubstr("cuda:100"));
}

TEST_F(RemoteCallByHand, ThatWasGivenUpBeforeItRanSaysWhichItWasToThoseWhoUseItsValue) {
  wire::Message cancel;
  cancel.kind = static_cast<uint8_t>(rpc::Kind::Cancel);
  cancel.tag = number;
  post(std::move(cancel));
  post(call());

  EXPECT_THAT(error_of_use(), AllOf(HasSubstr("elements_of"), HasSubstr("from worker0"), HasSubstr("given up")));
}

RPC_TEST(ErrorsOfLibtorchAndForeignThingsArriveToo) {
  Group group = start(2);

  EXPECT_THAT(
      remote_error_of([&] { group[0].rpc_sync<[] { TORCH_CHECK(false, "shapes do not match"); }>("worker1"); }).text(),
      HasSubstr("shapes do not match"));
  EXPECT_EQ(remote_error_of([&] { group[0].rpc_sync<[] { throw 5; }>("worker1"); }).type(), "int");
  EXPECT_EQ(remote_error_of([&] { group[0].rpc_sync<[] { throw "so there"; }>("worker1"); }).text(), "so there");
  EXPECT_EQ(remote_error_of([&] { group[0].rpc_sync<[] { throw std::string("so"); }>("worker1"); }).text(), "so");
  EXPECT_EQ(remote_error_of([&] { group[0].rpc_sync<[] { throw Timeout("[x] slow"); }>("worker1"); }).type(),
            "farad::Timeout");
}

RPC_TEST(NestedCallsKeepTheChain) {
  Group group = start(3);

  const auto error = remote_error_of([&] { group[0].rpc_sync<relays_twice>("worker2", 1); });

  EXPECT_THAT(error.hops(), ElementsAre("worker0", AllOf(HasSubstr("worker2"), HasSubstr("relays_twice")),
                                        AllOf(HasSubstr("worker1"), HasSubstr("relays_failure")),
                                        AllOf(HasSubstr("worker2"), HasSubstr("fails"))));
  EXPECT_EQ(error.type(), "std::invalid_argument");
  EXPECT_EQ(error.text(), "no such file");
  EXPECT_THAT(error.what_without_backtrace(), HasSubstr(" → worker1 \""));
}

RPC_TEST(FailureOfAReturnedFutureKeepsTheChain) {
  Group group = start(3);

  const auto error = remote_error_of([&] { group[0].rpc_sync<fails_later>("worker1"); });

  EXPECT_THAT(error.hops(), ElementsAre("worker0", HasSubstr("fails_later"), HasSubstr("fails")));
  EXPECT_EQ(error.text(), "no such file");
}

RPC_TEST(ContinuationsAreSparedOfErrors) {
  Group group = start(2);
  bool ran = false;

  const auto next = group[0].rpc_async<fails>("worker1", 1).then([&](int64_t) { ran = true; });

  EXPECT_THROW(next.wait(), RemoteError);
  EXPECT_FALSE(ran);
}

RPC_TEST(SelfCallsFailLikeOthers) {
  Group group = start(1);

  EXPECT_THAT(remote_error_of([&] { group[0].rpc_sync<fails>(0, 1); }).hops(),
              ElementsAre("worker0", HasSubstr("worker0 \"")));
}

/// Sets a variable for the life of a group.
struct Variable {
  Variable(const char* name, const char* value) : name(name) { ::setenv(name, value, 1); }
  ~Variable() { ::unsetenv(name); }
  const char* const name;
};

TEST_P(RpcSuite, StackOfTheThrowTravelsWhereItIsWanted) {
  if (GetParam() == "sim") GTEST_SKIP() << "a simulation reads no environment";
  const auto fail = [](Worker& worker) {
    return remote_error_of([&] { worker.rpc_sync<[] { TORCH_CHECK(false, "shapes do not match"); }>("worker1"); });
  };
  {
    Variable stacks("FARAD_STACKS", "1");
    Group group = start(2);
    const auto error = fail(group[0]);
    EXPECT_THAT(error.text(), Not(HasSubstr("frame #")));
    EXPECT_THAT(error.stack(), HasSubstr("frame #"));
    EXPECT_THAT(error.what_without_backtrace(), HasSubstr(error.stack()));
  }
  Group group = start(2);
  EXPECT_EQ(fail(group[0]).stack(), "");
}

TEST_P(RpcSuite, LimitsOfValuesAreTheConfiguredOnes) {
  if (GetParam() == "sim") GTEST_SKIP() << "a simulation reads no environment";
  using Numbers = std::vector<std::vector<std::vector<int64_t>>>;
  Variable depth("FARAD_LIMIT_DEPTH", "3");
  Group group = start(2);

  EXPECT_EQ((group[0].rpc_sync<[](std::vector<int64_t> x) { return x.size(); }>("worker1", std::vector<int64_t>{1})),
            1u);
  EXPECT_THAT(
      message_of<Error>([&] { group[0].rpc_sync<[](Numbers x) { return x.size(); }>("worker1", Numbers{{{1}}}); }),
      AllOf(HasSubstr("[rpc] call of \""), HasSubstr("to worker1: "), HasSubstr("depth")));
  EXPECT_THROW((group[0].rpc_sync<[] { return std::vector<Numbers>{{{{1}}}}; }>("worker1")), Error);
}

// --- Arguments that are none ---

void takes_three(int32_t, std::string, std::vector<int64_t>) {}

/// A call of takes_three with what was packed for another function, as a program of another build might make it.
template <auto Packed, class... A>
std::string refusal_of(Worker& worker, A&&... arguments) {
  (void)&detail::Remote<takes_three>::known;
  detail::Outcall call;
  call.function = &detail::Remote<takes_three>::function;
  call.arguments = detail::pack_arguments<Packed>({}, std::forward<A>(arguments)...);
  auto& agent = detail::WorkerCore::of(worker).agent();
  return message_of<Error>([&] { agent.call(base::Rank(1), std::move(call), {}); });
}

void two(int32_t, std::string) {}
void text_first(std::string, std::string, std::vector<int64_t>) {}
void wide_first(int64_t, std::string, std::vector<int64_t>) {}
void texts_last(int32_t, std::string, std::vector<std::string>) {}

RPC_TEST(WrongArgumentsAreRefusedByFunctionArgumentAndType) {
  Group group = start(2);
  const auto named = [](const char* argument) {
    return AllOf(HasSubstr("takes_three"), HasSubstr(argument), HasSubstr("worker1"));
  };

  EXPECT_THAT(refusal_of<two>(group[0], 1, "a"), AllOf(HasSubstr("takes_three"), HasSubstr("3"), HasSubstr("2")));
  EXPECT_THAT(refusal_of<text_first>(group[0], "x", "a", std::vector<int64_t>{}),
              AllOf(named("argument 1 (int)"), HasSubstr("string")));
  EXPECT_THAT(refusal_of<wide_first>(group[0], int64_t{1} << 40, "a", std::vector<int64_t>{}),
              AllOf(named("argument 1 (int)"), HasSubstr("1099511627776")));
  EXPECT_THAT(refusal_of<texts_last>(group[0], 1, "a", std::vector<std::string>{"x"}),
              AllOf(named("argument 3"), HasSubstr("element 0")));
  EXPECT_EQ(group[0].rpc_sync<add_one>("worker1", 1), 2) << "the callee goes on";
}

RPC_TEST(UnknownFunctionIsSaidToBeOfAnotherBuild) {
  Group group = start(2);
  detail::Function unknown{"unknown", nullptr, {1, 2}};
  detail::Outcall call;
  call.function = &unknown;
  auto& agent = detail::WorkerCore::of(group[0]).agent();

  EXPECT_THAT(message_of<Error>([&] { agent.call(base::Rank(1), std::move(call), {}); }),
              AllOf(HasSubstr("same build"), HasSubstr("\"unknown\""), HasSubstr("worker1")));
  EXPECT_EQ(group[0].rpc_sync<add_one>("worker1", 1), 2);
}

// --- Values that cannot travel ---

int64_t fetched(const RRef<int64_t>& ref) { return ref.to_here(); }
int64_t sum_with(int64_t& value, const RRef<int64_t>& ref) { return value + ref.to_here(); }
/// A value whose own conversion calls somebody.
struct Asks {
  operator int64_t() const { throw PeerLost("[x] it was asked, and is gone"); }
};

RPC_TEST(WhatCannotBePackedNamesFunctionAndPeer) {
  Group group = start(2);
  const RRef<int64_t> nothing;
  const auto five = group[0].remote<add_one>("worker1", 4);
  const auto call_of = [](const char* call) {
    return AllOf(testing::StartsWith("[rpc] call of \""), HasSubstr(call), HasSubstr("default-constructed"));
  };
  EXPECT_THAT(message_of<Error>([&] { group[0].rpc_sync<fetched>("worker1", nothing); }),
              call_of("fetched\" to worker1: "));
  EXPECT_THAT(message_of<Error>([&] { group[0].rpc_async<fetched>(0, nothing); }), call_of("fetched\" to worker0: "));
  EXPECT_THAT(message_of<Error>([&] { group[0].remote<fetched>(1, nothing); }), call_of("fetched\" to worker1: "));
  EXPECT_THAT(message_of<Error>([&] { group[0].send<fetched>(1, nothing); }), call_of("fetched\" to worker1: "));
  EXPECT_THAT(message_of<Error>([&] { five.rpc_sync<sum_with>(nothing); }), call_of("sum_with\" to worker1: "));

  const c10::IValue storage(at::ones({1}).storage());
  EXPECT_THAT(message_of<Error>([&] { group[0].rpc_sync("worker1", "aten::add", {storage}); }),
              AllOf(HasSubstr("[rpc] call of \"aten::add\" to worker1: "), HasSubstr("does not travel")));
  EXPECT_THAT(message_of<Error>([&] { group[0].rpc_async("worker1", "", {}); }),
              HasSubstr("[rpc] call of \"\" to worker1: "));

  EXPECT_EQ(message_of<PeerLost>([&] { group[0].rpc_sync<add_one>("worker1", Asks()); }),
            "[x] it was asked, and is gone")
      << "what is not of the call stays as it is";
  EXPECT_EQ(five.rpc_sync<add_one_to>(), 6);
}

Unreadable gives_unreadable() { return {}; }

RPC_TEST(ResultThatCannotBeReadNamesFunctionAndPeer) {
  Group group = start(2);
  const auto from = [](const char* function, const char* peer) {
    return AllOf(testing::StartsWith("[rpc] "), HasSubstr(function), HasSubstr(peer), HasSubstr("not today"));
  };
  for (const char* peer : {"worker1", "worker0"}) {
    EXPECT_THAT(message_of<Error>([&] { group[0].rpc_sync<gives_unreadable>(peer); }), from("gives_unreadable", peer));
    EXPECT_THAT(message_of<Error>([&] { group[0].rpc_async<gives_unreadable>(peer).wait(); }),
                from("gives_unreadable", peer));
    const auto kept = group[0].remote<gives_unreadable>(peer);
    EXPECT_THAT(message_of<Error>([&] { kept.to_here(); }), from("to_here", peer));
    EXPECT_THAT(message_of<Error>([&] { kept.rpc_sync<same>(); }), from("same", peer));
    EXPECT_THAT(message_of<Error>([&] { kept.rpc_async<same>().wait(); }), from("same", peer));
  }
}

at::Tensor quantised() { return at::quantize_per_tensor(at::rand({4}), 0.1, 0, at::kQInt8); }

RPC_TEST(ResultThatCannotTravelIsAnErrorAndTheCalleeGoesOn) {
  Group group = start(2);

  for (const char* to : {"worker1", "worker0"}) {
    EXPECT_THAT(message_of<Error>([&] { group[0].rpc_sync<quantised>(to); }),
                AllOf(HasSubstr("result"), HasSubstr("quantised"), HasSubstr(to)));
    EXPECT_THROW(group[0].rpc_async<quantised>(to).wait(), Error);
    EXPECT_EQ(group[0].rpc_sync<add_one>(to, 1), 2);
  }
}

RPC_TEST(ArgumentThatCannotTravelIsRefusedAtTheCall) {
  Group group = start(2);

  EXPECT_THAT(message_of<Error>([&] { group[0].rpc_sync<[](at::Tensor) {}>("worker1", quantised()); }),
              AllOf(HasSubstr("[rpc] call of \""), HasSubstr("worker1")));
  EXPECT_THROW(group[0].rpc_async<[](at::Tensor) {}>("worker1", quantised()).wait(), Error);
  EXPECT_EQ(group[0].rpc_sync<add_one>("worker1", 1), 2);
}

}  // namespace
}  // namespace farad::test
