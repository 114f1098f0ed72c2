#pragma once

#include <farad/detail/function.h>
#include <farad/options.h>

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <source_location>

namespace farad {
class Worker;
}

/// What RRef<T> is made of, without the T.
namespace farad::detail {

class WorkerCore;
struct Outcall;

/// Names a value that lives on one worker: who made the reference, and that one's number for it.
struct RefId {
  uint64_t maker = 0;
  uint64_t number = 0;
  auto operator<=>(const RefId&) const = default;
};

/// This worker's share of a referenced value; its end gives the share up. All copies of an RRef on one worker have it
/// in common. Any thread.
/// `where` is for people who look for what was left behind.
std::shared_ptr<RefHandle> own(Worker& worker, std::shared_ptr<void> value, const std::source_location& where);

WorkerInfo owner_of(const RefHandle&);
bool is_owner(const RefHandle&);
bool is_confirmed(const RefHandle&);
/// On the owner, once the value is there: the value. Waits for it, throws what its creation threw.
void* value_of(const RefHandle&);

Packet call_on(const std::shared_ptr<RefHandle>&, Outcall call, const CallOptions& options);
void start_on(const std::shared_ptr<RefHandle>&, Outcall call, const CallOptions& options,
              std::shared_ptr<FutureCore> future, std::function<void(Packet)> done);
/// The result of `call`, which runs on the referenced object, stays with the owner.
std::shared_ptr<RefHandle> remote_on(const std::shared_ptr<RefHandle>&, Outcall call, const CallOptions& options);
std::shared_ptr<RefHandle> remote_at(const std::shared_ptr<WorkerCore>&, int rank, Outcall call,
                                     const CallOptions& options);
/// Both throw Closed, naming the function that is to be called, if there is no worker any more to call from.
std::shared_ptr<FutureHost> host_of(const RefHandle&, std::string_view function);
/// Of values that its worker sends.
ValueLimits limits_of(const RefHandle&, std::string_view function);

/// A method of an object, whether the value is that object or holds it (a module holder, a smart pointer).
template <class T, auto Fn, class... A>
decltype(auto) invoke_on(T& value, A&&... arguments) {
  if constexpr (std::is_member_function_pointer_v<decltype(Fn)>) {
    using Class = typename SignatureOf<Fn>::Class;
    if constexpr (std::is_base_of_v<Class, T>) {
      return (value.*Fn)(std::forward<A>(arguments)...);
    } else {
      return ((*value.operator->()).*Fn)(std::forward<A>(arguments)...);
    }
  } else {
    return Fn(value, std::forward<A>(arguments)...);
  }
}

/// The parameters that come by message: all of a member function's, all but the object of a free one's.
template <class Parameters>
struct WithoutFirst;
template <class First, class... Rest>
struct WithoutFirst<std::tuple<First, Rest...>> {
  using type = std::tuple<Rest...>;
};
template <auto Fn>
struct MethodParameters {
  using type = typename SignatureOf<Fn>::Parameters;
};
template <auto Fn>
  requires(!std::is_member_function_pointer_v<decltype(Fn)>)
struct MethodParameters<Fn> : WithoutFirst<typename SignatureOf<Fn>::Parameters> {};

template <class Parameters>
struct ValuesOf;
template <class... P>
struct ValuesOf<std::tuple<P...>> {
  using type = std::tuple<std::decay_t<P>...>;
  static constexpr bool takes_values =
      ((!std::is_lvalue_reference_v<P> || std::is_const_v<std::remove_reference_t<P>>) && ...);
};

template <class T, auto Fn, bool Keep>
void run_method(Invocation& invocation) {
  using Parameters = typename MethodParameters<Fn>::type;
  using Indices = std::make_index_sequence<std::tuple_size_v<Parameters>>;
  typename ValuesOf<Parameters>::type values{};
  read_arguments(invocation.arguments(), values, function_name<Fn>, Indices{});
  T& object = *static_cast<T*>(invocation.object());
  auto call = [&]() -> decltype(auto) {
    return apply_as<Parameters>(
        [&](auto&&... a) -> decltype(auto) { return invoke_on<T, Fn>(object, std::forward<decltype(a)>(a)...); },
        values, Indices{});
  };
  using Returned = typename SignatureOf<Fn>::Returned;
  if constexpr (Keep) {
    keep<Returned>(invocation, call);
  } else {
    deliver<Returned>(invocation, call);
  }
}

template <class T, auto Fn, bool Keep>
struct RemoteMethod {
  static inline Function function{pretty<Fn>(), &run_method<T, Fn, Keep>};
  static inline const bool known = register_function(function);
};

/// The value itself, for to_here.
template <class T>
void run_fetch(Invocation& invocation) {
  Writer out = invocation.result();
  if constexpr (!std::is_void_v<T>) detail::write<T>(out, *static_cast<const T*>(invocation.object()));
}
template <class T>
struct RemoteFetch {
  static inline Function function{"to_here", &run_fetch<T>};
  static inline const bool known = register_function(function);
};
/// A call by name gives references to tensors between programs, which have nothing else in common but this.
template <>
struct RemoteFetch<at::Tensor> {
  static Function function;
  static const bool known;
};

}  // namespace farad::detail
