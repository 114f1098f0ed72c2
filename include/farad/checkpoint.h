#pragma once

#include <ATen/core/TensorBody.h>

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace farad {
namespace detail {

using Tensors = std::vector<at::Tensor>;

/// `function` gets `inputs` as they are now, and detached ones when it computes again.
Tensors checkpoint(std::function<Tensors(const Tensors&)> function, Tensors inputs);

/// A value seen as the tensors in it: how they are taken out, and put back in the same order.
template <class T>
struct TensorsOf {                      // of all other types: none
  static constexpr bool fixed = false;  // tensors, in a number that the type tells, and nothing else
  static void take(T&, Tensors&) {}
  static void put(T&, const Tensors&, size_t&) {}
};

template <>
struct TensorsOf<at::Tensor> {
  static constexpr bool fixed = true;
  static void take(at::Tensor& value, Tensors& all) { all.push_back(std::move(value)); }
  static void put(at::Tensor& value, const Tensors& all, size_t& next) { value = all[next++]; }
};

template <class List, bool known_size>
struct TensorsOfList {
  static constexpr bool fixed = known_size;
  static void take(List& value, Tensors& all) {
    for (auto& element : value) all.push_back(std::move(element));
  }
  static void put(List& value, const Tensors& all, size_t& next) {
    for (auto& element : value) element = all[next++];
  }
};

template <>
struct TensorsOf<Tensors> : TensorsOfList<Tensors, false> {};
template <size_t N>
struct TensorsOf<std::array<at::Tensor, N>> : TensorsOfList<std::array<at::Tensor, N>, true> {};

template <class Tuple, class... Element>
struct TensorsOfTuple {
  static constexpr bool fixed = (TensorsOf<Element>::fixed && ...);
  static void take(Tuple& value, Tensors& all) {
    std::apply([&](auto&... element) { (TensorsOf<Element>::take(element, all), ...); }, value);
  }
  static void put(Tuple& value, const Tensors& all, size_t& next) {
    std::apply([&](auto&... element) { (TensorsOf<Element>::put(element, all, next), ...); }, value);
  }
};

template <class... T>
struct TensorsOf<std::tuple<T...>> : TensorsOfTuple<std::tuple<T...>, T...> {};
template <class A, class B>
struct TensorsOf<std::pair<A, B>> : TensorsOfTuple<std::pair<A, B>, A, B> {};

/// How an input is kept that was given as an A: as a value, but what has a name and cannot be copied stays where it is.
template <class A>
using Kept = std::conditional_t<std::is_lvalue_reference_v<A> && !std::is_copy_constructible_v<std::decay_t<A>>, A,
                                std::decay_t<A>>;
/// How the function gets it: a copy of its own each time it runs, or the kept one where there can be no other.
template <class A>
using Lent = std::conditional_t<std::is_copy_constructible_v<Kept<A>>, Kept<A>, Kept<A>&>;

}  // namespace detail

/// fn(inputs...), which does not keep what its backward pass will need: it is run again then. That takes less memory
/// and more time. Over calls too: those that fn makes are made again, and what they record then is kept for the pass
/// only that needs it. In Context::backward and in a plain backward().
///
/// Gradients go to the tensors among `inputs` (Tensor; vector, array, pair or tuple of them), and to the leaves that
/// fn uses, here and at the workers it calls. A tensor with history that fn uses has to be among the inputs. fn returns
/// tensors: one, or a vector, array, pair or tuple of them. Where gradients are recorded its floating-point results
/// always require one.
///
/// fn and what it is given are copied or moved in. An input with a name that cannot be copied, such as a Worker, is
/// used where it is and has to outlive the graph; fn gets one that cannot be copied as it left it the first time.
///
/// fn must do the same both times. This process's random numbers are the same again; those that functions on other
/// workers draw are not. libtorch has one generator for all threads of a process, and it is set back while fn runs
/// again: nothing else in the process may draw from it then, so two checkpoints that draw are not to be computed again
/// at once. A generator that fn makes and seeds itself has no such limit. Its gradients cannot be differentiated:
/// create_graph through it is an error.
template <class F, class... A>
auto checkpoint(F fn, A&&... inputs) {
  using Inputs = std::tuple<detail::Kept<A>...>;
  using Result = std::decay_t<std::invoke_result_t<F&, detail::Kept<A>&...>>;
  static_assert(std::is_same_v<Result, detail::Tensors> || detail::TensorsOf<Result>::fixed,
                "checkpoint: fn has to return a Tensor, or a vector, array, pair or tuple of them");
  struct Call {
    F fn;
    Inputs inputs;
  };
  const auto call = std::make_shared<Call>(Call{std::move(fn), Inputs(std::forward<A>(inputs)...)});
  detail::Tensors tensors;
  detail::TensorsOf<Inputs>::take(call->inputs, tensors);
  const auto results = detail::checkpoint(
      [call](const detail::Tensors& given) {
        using Now = std::tuple<detail::Lent<A>...>;
        Now now = std::apply([](auto&... kept) { return Now(kept...); }, call->inputs);
        size_t next = 0;
        detail::TensorsOf<Now>::put(now, given, next);
        Result value = std::apply(call->fn, now);
        detail::Tensors all;
        detail::TensorsOf<Result>::take(value, all);
        return all;
      },
      std::move(tensors));
  Result result;
  if constexpr (std::is_same_v<Result, detail::Tensors>) result.resize(results.size());
  size_t next = 0;
  detail::TensorsOf<Result>::put(result, results, next);
  return result;
}

}  // namespace farad
