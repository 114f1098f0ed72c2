#pragma once

#include <farad/detail/function.h>
#include <farad/detail/ivalue.h>

#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

/// Functions that other programs call by their name: they know nothing of the C++ types, so arguments and results
/// travel as IValues.
namespace farad::detail {

/// The arguments of a call by name; throws BadArguments, naming it, if they are none.
std::vector<c10::IValue> read_values(Reader& in, std::string_view name);
/// The other side of it.
Packet pack_values(const std::vector<c10::IValue>& values, const ValueLimits& limits = {});

/// "(Tensor, int)"
std::string kinds_of(const std::vector<c10::IValue>& values);

template <class Values, size_t... I>
void convert_arguments(const std::vector<c10::IValue>& given, Values& values, std::string_view function,
                       std::index_sequence<I...>) {
  const std::string call = "[rpc] call of \"" + std::string(function) + "\": ";
  if (given.size() != sizeof...(I)) {
    throw BadArguments(call + "it takes " + std::to_string(sizeof...(I)) + " arguments, got " + kinds_of(given));
  }
  [[maybe_unused]] const auto one = [&]<size_t N>(std::integral_constant<size_t, N>) {
    using T = std::tuple_element_t<N, Values>;
    std::string why;
    if (AsValue<T>::from(given[N], std::get<N>(values), why)) return;
    throw BadArguments(call + "argument " + std::to_string(N + 1) + " (" + std::string(type_name<T>()) + "): " + why);
  };
  (one(std::integral_constant<size_t, I>{}), ...);
}

template <class Returned, class Produce>
void deliver_value(Invocation& invocation, Produce&& produce) {
  using R = ResultOf<Returned>;
  if constexpr (is_future<Returned>) {
    auto future = produce();
    invocation.result_later(future.core(), [future](Writer& out) {
      if constexpr (std::is_void_v<R>) {
        detail::write(out, c10::IValue());
      } else {
        detail::write(out, AsValue<R>::to(future.wait()));
      }
    });
  } else {
    c10::IValue value;
    if constexpr (std::is_void_v<Returned>) {
      produce();
    } else {
      value = AsValue<R>::to(produce());
    }
    Writer out = invocation.result();
    detail::write(out, value);
  }
}

template <class R>
concept ResultHasValue = std::is_void_v<R> || HasValue<R>;
template <class Values>
inline constexpr bool all_have_values = false;
template <class... T>
inline constexpr bool all_have_values<std::tuple<T...>> = (HasValue<T> && ...);

template <auto Fn>
void run_by_name(Invocation& invocation) {
  using S = SignatureOf<Fn>;
  static_assert(S::takes_values, "[farad] a remote function takes values, const& or &&: its arguments come by message");
  static_assert(all_have_values<typename S::Values> && ResultHasValue<ResultOf<typename S::Returned>>,
                "[farad] FARAD_REMOTE: called by name, a function takes and gives what an IValue can hold");
  using Indices = std::make_index_sequence<S::count>;
  typename S::Values values{};
  convert_arguments(read_values(invocation.arguments(), function_name<Fn>), values, function_name<Fn>, Indices{});
  deliver_value<typename S::Returned>(invocation, [&]() -> decltype(auto) {
    return apply_as<typename S::Parameters>(
        [](auto&&... a) -> decltype(auto) { return Fn(std::forward<decltype(a)>(a)...); }, values, Indices{});
  });
}

/// What FARAD_REMOTE makes known.
template <auto Fn>
struct ByName {
  static inline const Function function{pretty<Fn>(), &run_by_name<Fn>};
};

}  // namespace farad::detail
