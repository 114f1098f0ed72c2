#pragma once

#include <farad/future.h>

#include <tuple>
#include <type_traits>

/// What can be called from elsewhere, taken apart.
namespace farad::detail {

/// Of the function itself: what it returns, its parameters as written, and the class it is a member of, if any.
template <class R, class C, class... P>
struct Parts {
  using Returned = R;
  using Class = C;
  using Parameters = std::tuple<P...>;
  using Values = std::tuple<std::decay_t<P>...>;
  static constexpr size_t count = sizeof...(P);
  /// Values, const& and && are what can be given something that came by message.
  static constexpr bool takes_values =
      ((!std::is_lvalue_reference_v<P> || std::is_const_v<std::remove_reference_t<P>>) && ...);
};

template <class F>
struct Signature : Signature<decltype(&F::operator())> {
  using Class = void;  // A captureless lambda's own class is nobody's business.
};
template <class R, class... P>
struct Signature<R (*)(P...)> : Parts<R, void, P...> {};
template <class R, class... P>
struct Signature<R (*)(P...) noexcept> : Parts<R, void, P...> {};
template <class R, class C, class... P>
struct Signature<R (C::*)(P...)> : Parts<R, C, P...> {};
template <class R, class C, class... P>
struct Signature<R (C::*)(P...) const> : Parts<R, C, P...> {};
template <class R, class C, class... P>
struct Signature<R (C::*)(P...) noexcept> : Parts<R, C, P...> {};
template <class R, class C, class... P>
struct Signature<R (C::*)(P...) const noexcept> : Parts<R, C, P...> {};
template <class R, class C, class... P>
struct Signature<R (C::*)(P...)&> : Parts<R, C, P...> {};
template <class R, class C, class... P>
struct Signature<R (C::*)(P...) const&> : Parts<R, C, P...> {};
template <class R, class C, class... P>
struct Signature<R (C::*)(P...) & noexcept> : Parts<R, C, P...> {};
template <class R, class C, class... P>
struct Signature<R (C::*)(P...) const & noexcept> : Parts<R, C, P...> {};

template <auto Fn>
using SignatureOf = Signature<std::remove_cv_t<decltype(Fn)>>;

template <class T>
inline constexpr bool is_future = FutureValue<std::decay_t<T>>::is_future;

/// What the caller gets: a Future<R> is waited for where the function runs, or rather, nobody waits.
template <class Returned>
using ResultOf = typename FutureValue<std::decay_t<Returned>>::type;

}  // namespace farad::detail

namespace farad {

/// The result of a call of Fn, as its caller gets it.
template <auto Fn>
using Result = detail::ResultOf<typename detail::SignatureOf<Fn>::Returned>;

}  // namespace farad
