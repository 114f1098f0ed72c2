#pragma once

#include <farad/debug.h>
#include <farad/detail/by_name.h>
#include <farad/detail/function.h>
#include <farad/detail/reference.h>
#include <farad/error.h>
#include <farad/future.h>
#include <farad/options.h>

#include <concepts>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace farad {

template <class T>
class RRef;

namespace detail {
class WorkerCore;

/// A call on its way: which function, what it is given.
struct Outcall {
  const Function* function = nullptr;
  std::string name = {};  ///< instead of `function`: an operator of libtorch, or what FARAD_REMOTE made known
  Packet arguments = {};
  bool one_way = false;                   ///< nobody wants the result, nor the error
  std::optional<RefId> makes = {};        ///< the result stays at the callee, as the value of this reference
  std::optional<RefId> object = {};       ///< the function is called on this referenced value
  std::shared_ptr<const void> keep = {};  ///< references that must stay until the call has ended there
};
}  // namespace detail

/// Whom to call: a member's name, its rank, or what members() says of it.
class Peer {
 public:
  Peer(const char* name) : who_(std::string(name)) {}
  Peer(std::string name) : who_(std::move(name)) {}
  Peer(std::string_view name) : who_(std::string(name)) {}
  Peer(int rank) : who_(rank) {}
  /// Any other kind of integer: 0u must not be ambiguous, nor a rank beyond all ranks become one by being cut.
  template <std::integral Rank>
    requires(sizeof(Rank) >= sizeof(int) && !std::same_as<Rank, wchar_t> && !std::same_as<Rank, char32_t>)
  Peer(Rank rank) {
    if (std::in_range<int>(rank)) {
      who_ = static_cast<int>(rank);
    } else {
      who_ = NoRank{std::to_string(rank)};
    }
  }
  Peer(const WorkerInfo& info) : who_(info.rank) {}

  /// A number that is beyond all ranks, as it was given: for the error.
  struct NoRank {
    std::string text;
  };
  using Who = std::variant<std::string, int, NoRank>;
  const Who& who() const { return who_; }

 private:
  Who who_;
};

/// Makes calls, with options. Copyable; keeps what it needs of the worker. Any thread.
class Caller {
 public:
  Caller(std::shared_ptr<detail::WorkerCore> core, CallOptions options) : core_(std::move(core)), options_(options) {}

  /// Runs Fn(args...) at `to` and gives its result, or throws: PeerLost, Timeout, RemoteError, Closed.
  template <auto Fn, class... A>
  Result<Fn> rpc_sync(const Peer& to, A&&... args) const {
    const int rank = rank_of(to, detail::function_name<Fn>);
    return detail::unpack_result<Result<Fn>>(wait(rank, outcall<Fn>(rank, std::forward<A>(args)...)),
                                             detail::function_name<Fn>, [&] { return name_of(rank); });
  }

  /// The same without waiting. Cancelling the future reaches the function, which can ask cancelled().
  template <auto Fn, class... A>
  Future<Result<Fn>> rpc_async(const Peer& to, A&&... args) const {
    using R = Result<Fn>;
    const int rank = rank_of(to, detail::function_name<Fn>);
    Promise<R> promise(host());
    start(rank, outcall<Fn>(rank, std::forward<A>(args)...), promise.future().core(),
          [promise, caller = *this, rank](detail::Packet packet) {
            detail::fulfil<R>(promise, std::move(packet), detail::function_name<Fn>,
                              [&] { return caller.name_of(rank); });
          });
    return promise.future();
  }

  /// Runs Fn(args...) at `to`; the result stays there. Returns at once: what goes wrong shows at the first use. Needs
  /// <farad/rref.h>.
  template <auto Fn, class... A>
  RRef<Result<Fn>> remote(const Peer& to, A&&... args) const;

  /// Runs at `to`, by its name, an operator of libtorch ("aten::add", or "aten::add.Tensor" to pick an overload), or a
  /// function that FARAD_REMOTE has made known there. What is not given takes its default. Throws Error, saying what
  /// there is, if there is nothing of that name that takes `args`.
  c10::IValue rpc_sync(const Peer& to, std::string_view name, std::vector<c10::IValue> args) const;
  Future<c10::IValue> rpc_async(const Peer& to, std::string_view name, std::vector<c10::IValue> args) const;
  /// Its result, which has to be a Tensor, stays there. Needs <farad/rref.h>.
  RRef<at::Tensor> remote(const Peer& to, std::string_view name, std::vector<c10::IValue> args) const;

  /// Runs Fn(args...) at `to`, some time, and hears nothing of it.
  template <auto Fn, class... A>
  void send(const Peer& to, A&&... args) const {
    const int rank = rank_of(to, detail::function_name<Fn>);
    auto call = outcall<Fn>(rank, std::forward<A>(args)...);
    call.one_way = true;
    start(rank, std::move(call), nullptr, nullptr);
  }

 private:
  /// `Known` is what the callee knows the function by.
  template <auto Fn, class Known = detail::Remote<Fn>, class... A>
  detail::Outcall outcall(int to, A&&... args) const {
    (void)&Known::known;
    try {
      return {&Known::function, {}, detail::pack_arguments<Fn>(limits(), std::forward<A>(args)...)};
    } catch (const Error&) {
      detail::not_packed(detail::function_name<Fn>, name_of(to));
    }
  }
  detail::Outcall outcall(int to, std::string_view name, const std::vector<c10::IValue>& args) const;

  std::shared_ptr<detail::FutureHost> host() const;
  /// Throws Error, naming the function, if there is no such peer.
  int rank_of(const Peer& peer, std::string_view function) const;
  std::string name_of(int rank) const;
  const detail::ValueLimits& limits() const;
  detail::Packet wait(int to, detail::Outcall call) const;
  void start(int to, detail::Outcall call, std::shared_ptr<detail::FutureCore> future,
             std::function<void(detail::Packet)> done) const;

  std::shared_ptr<detail::WorkerCore> core_;
  CallOptions options_;
};

/// One member of a group. Several may live in one process. Move-only; moving invalidates nothing made from it.
/// Any thread may call anything but close() and leave(), which one thread calls.
class Worker {
 public:
  /// Unset fields come from the environment; returns when all members have joined. Throws Timeout naming who is
  /// missing, or Error saying what is wrong and where.
  static Worker join(WorkerOptions options = {});
  /// The worker this thread runs for: in remote functions, continuations, hooks and spawn's function. Elsewhere throws.
  static Worker& current();

  Worker(Worker&&) noexcept;
  Worker& operator=(Worker&&) noexcept;
  /// Without close() before: leaves at once, and peers see PeerLost.
  ~Worker();

  const WorkerInfo& self() const;
  int rank() const;
  int size() const;
  std::vector<WorkerInfo> members() const;
  /// Throws Error, naming the members, if there is none of that name.
  WorkerInfo find(std::string_view name) const;

  template <auto Fn, class... A>
  Result<Fn> rpc_sync(const Peer& to, A&&... args) const {
    return with({}).rpc_sync<Fn>(to, std::forward<A>(args)...);
  }
  template <auto Fn, class... A>
  Future<Result<Fn>> rpc_async(const Peer& to, A&&... args) const {
    return with({}).rpc_async<Fn>(to, std::forward<A>(args)...);
  }
  template <auto Fn, class... A>
  RRef<Result<Fn>> remote(const Peer& to, A&&... args) const {
    return with({}).template remote<Fn>(to, std::forward<A>(args)...);
  }
  template <auto Fn, class... A>
  void send(const Peer& to, A&&... args) const {
    with({}).send<Fn>(to, std::forward<A>(args)...);
  }

  c10::IValue rpc_sync(const Peer& to, std::string_view name, std::vector<c10::IValue> args) const;
  Future<c10::IValue> rpc_async(const Peer& to, std::string_view name, std::vector<c10::IValue> args) const;
  RRef<at::Tensor> remote(const Peer& to, std::string_view name, std::vector<c10::IValue> args) const;

  Caller with(CallOptions options) const;

  /// Returns when every member has called it as often. Throws PeerLost if one is lost.
  void barrier();
  /// This member alone; the others go on, and do not count it as lost.
  void leave();
  /// Returns once every member has called it and nothing is in flight. Throws PeerLost if a member was lost; closed
  /// either way. Twice is fine; in a remote function it throws.
  void close();

  /// What is in flight and what is referred to, now: for looking at, and for tests that nothing is left.
  Debug debug() const;

 private:
  explicit Worker(std::shared_ptr<detail::WorkerCore> core);
  friend class detail::WorkerCore;

  std::shared_ptr<detail::WorkerCore> core_;
};

/// In a remote function: whether its caller has given up on it, by cancelling or by its timeout.
bool cancelled();

}  // namespace farad

/// At namespace scope: lets others, also other programs, call `fn` by its qualified name. It takes and gives what an
/// IValue can hold; a struct is the tuple of its fields. An instance of a template may be given as it is, commas and
/// all, and is called with its arguments as they are written here.
#define FARAD_REMOTE(...)                                                                                       \
  [[maybe_unused]] static const bool FARAD_CONCAT(farad_remote_, __COUNTER__) = ::farad::detail::register_name( \
      ::farad::detail::name_as_written(::farad::detail::function_name<__VA_ARGS__>, #__VA_ARGS__),              \
      ::farad::detail::ByName<__VA_ARGS__>::function);
#define FARAD_CONCAT(a, b) FARAD_CONCAT_(a, b)
#define FARAD_CONCAT_(a, b) a##b
