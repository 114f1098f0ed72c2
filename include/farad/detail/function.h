#pragma once

#include <farad/detail/codec.h>
#include <farad/detail/packet.h>
#include <farad/detail/signature.h>

#include <compare>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace farad::detail {

/// Names a function to another process of the same build: which module of the program it is in, and where.
struct FunctionId {
  uint64_t module = 0;
  uint64_t offset = 0;
  auto operator<=>(const FunctionId&) const = default;
};

/// One call, where it runs: what it was given and what becomes of it.
class Invocation {
 public:
  virtual ~Invocation() = default;
  virtual Reader& arguments() = 0;
  /// Where the result goes. Written at most once.
  virtual Writer result() = 0;
  /// The result comes later: `write` is called once `core` is ready, unless it failed.
  virtual void result_later(std::shared_ptr<FutureCore> core, std::function<void(Writer&)> write) = 0;
  /// For methods: the object that is called. Null elsewhere.
  virtual void* object() = 0;
  /// For `remote`: the result stays here, and this is it.
  virtual void keep(std::shared_ptr<void> value) = 0;
  /// The same later: `make` is called once `core` is ready, unless it failed.
  virtual void keep_later(std::shared_ptr<FutureCore> core, std::function<std::shared_ptr<void>()> make) = 0;
};

/// Something that can be called from elsewhere. Lives as long as the program.
struct Function {
  std::string_view name;          ///< as the compiler prints it: for messages, never for finding it
  void (*run)(Invocation& call);  ///< throws BadArguments, or what the function throws
  FunctionId id = {};             ///< set by register_function
};

/// The arguments that came are not those the function takes.
class BadArguments : public Error {
 public:
  using Error::Error;
};

/// Makes `function` known under its place in the binary. True, so that it can initialise something.
bool register_function(Function& function);
/// Makes a function of farad's own known under a number, which is the same in every program.
bool register_everywhere(Function& function, uint64_t number);
const Function* find_function(const FunctionId& id);

/// What others call a function by: its name as the compiler prints it, but with the arguments of a template as they
/// were written, because compilers print those each in its way, or leave them out.
std::string name_as_written(std::string_view name, std::string_view written);
/// Makes `function` known to other programs, under its qualified name.
bool register_name(std::string_view name, const Function& function);
const Function* find_function(std::string_view name);

/// The name of a function given as a template argument, as this compiler writes it.
template <auto Fn>
constexpr std::string_view pretty() {
  std::string_view text = __PRETTY_FUNCTION__;
  const size_t start = text.find("Fn = ");
  text.remove_prefix(start + 5);
  // GCC goes on with other names after a semicolon; both end with a bracket.
  text = text.substr(0, text.find(';') != text.npos ? text.find(';') : text.rfind(']'));
  if (text.starts_with('&')) text.remove_prefix(1);
  return text;
}
/// The same, found when it is compiled: calls need it each time, if only for what may go wrong.
template <auto Fn>
inline constexpr std::string_view function_name = pretty<Fn>();

template <class T>
std::string_view type_name() {
  std::string_view text = __PRETTY_FUNCTION__;
  const size_t start = text.find("T = ");
  text.remove_prefix(start + 4);
  return text.substr(0, text.find(';') != text.npos ? text.find(';') : text.rfind(']'));
}

/// Reads the arguments of a call; names the function, the argument and both types if they do not fit.
template <class Values, size_t... I>
void read_arguments(Reader& in, Values& values, std::string_view function, std::index_sequence<I...>) {
  auto refuse = [&](const std::string& why) {
    throw BadArguments("[rpc] call of \"" + std::string(function) + "\": " + why);
  };
  if (!in.begin_array_of(sizeof...(I), "arguments")) refuse(in.error());
  [[maybe_unused]] auto one = [&]<size_t N>(std::integral_constant<size_t, N>) {
    using T = std::tuple_element_t<N, Values>;
    if (detail::read(in, std::get<N>(values))) return;
    refuse("argument " + std::to_string(N + 1) + " (" + std::string(type_name<T>()) + "): " + in.error());
  };
  (one(std::integral_constant<size_t, I>{}), ...);
  in.end();
}

/// Gives each parameter its value, as what it asks for: a value or an rvalue is moved, a const& is lent.
template <class Parameters, size_t... I, class F, class Values>
decltype(auto) apply_as(F&& call, Values& values, std::index_sequence<I...>) {
  return call(static_cast<std::tuple_element_t<I, Parameters>&&>(std::get<I>(values))...);
}

template <class Returned, class Produce>
void deliver(Invocation& invocation, Produce&& produce) {
  if constexpr (is_future<Returned>) {
    auto future = produce();
    using R = ResultOf<Returned>;
    invocation.result_later(future.core(), [future](Writer& out) {
      if constexpr (!std::is_void_v<R>) detail::write<R>(out, future.wait());
    });
  } else if constexpr (std::is_void_v<Returned>) {
    produce();
  } else {
    Writer out = invocation.result();
    detail::write<std::decay_t<Returned>>(out, produce());
  }
}

/// The result becomes a value that lives here.
template <class Returned, class Produce>
void keep(Invocation& invocation, Produce&& produce) {
  using R = ResultOf<Returned>;
  if constexpr (is_future<Returned>) {
    auto future = produce();
    invocation.keep_later(future.core(), [future]() -> std::shared_ptr<void> {
      if constexpr (std::is_void_v<R>) {
        return std::make_shared<Nothing>();
      } else {
        return std::make_shared<R>(future.wait());
      }
    });
  } else if constexpr (std::is_void_v<Returned>) {
    produce();
    invocation.keep(std::make_shared<Nothing>());
  } else {
    invocation.keep(std::make_shared<R>(produce()));
  }
}

/// Reads the arguments and gives what calls Fn with them.
template <auto Fn, bool Keep>
void run_free(Invocation& invocation) {
  using S = SignatureOf<Fn>;
  using Indices = std::make_index_sequence<S::count>;
  typename S::Values values{};
  read_arguments(invocation.arguments(), values, function_name<Fn>, Indices{});
  auto call = [&]() -> decltype(auto) {
    return apply_as<typename S::Parameters>(
        [](auto&&... a) -> decltype(auto) { return Fn(std::forward<decltype(a)>(a)...); }, values, Indices{});
  };
  if constexpr (Keep) {
    keep<typename S::Returned>(invocation, call);
  } else {
    deliver<typename S::Returned>(invocation, call);
  }
}

/// Its address, in the binary, is the function's identity; that it exists makes the function known.
template <auto Fn>
struct Remote {
  static inline Function function{pretty<Fn>(), &run_free<Fn, false>};
  static inline const bool known = register_function(function);
};
/// The same for calls whose result stays where it is made.
template <auto Fn>
struct RemoteKept {
  static inline Function function{pretty<Fn>(), &run_free<Fn, true>};
  static inline const bool known = register_function(function);
};

/// Where a handler has caught what packing the arguments of a call has thrown: throws it on, and an Error says which
/// call to whom it was.
[[noreturn]] void not_packed(std::string_view function, const std::string& peer);

/// Writes the arguments of a call of Fn, each converted to its parameter's type.
template <auto Fn, class... A>
Packet pack_arguments(const ValueLimits& limits, A&&... arguments) {
  using S = SignatureOf<Fn>;
  static_assert(S::takes_values, "[farad] a remote function takes values, const& or &&: its arguments come by message");
  static_assert(sizeof...(A) == S::count, "[farad] wrong number of arguments for this remote function");
  Packet packet;
  packet.body.reserve(Packet::usual_bytes);
  Writer out(packet.body, packet.tensors, packet.references, limits);
  typename S::Values values(std::forward<A>(arguments)...);
  write_each(out, values);
  return packet;
}

/// What came back. `peer()` names whom it came from, if it is none.
template <class R, class Name>
R unpack_result(Packet packet, std::string_view function, const Name& peer) {
  if constexpr (!std::is_void_v<R>) {
    Reader in(packet.body, packet.tensors, packet.limits);
    in.use(packet.references);
    R value{};
    if (!detail::read(in, value) || !in.finish()) {
      throw Error("[rpc] the result of \"" + std::string(function) + "\" from " + peer() + ": " + in.error());
    }
    return value;
  }
}

/// Gives a promise what came back.
template <class R, class Name>
void fulfil(const Promise<R>& promise, Packet packet, std::string_view function, const Name& peer) {
  try {
    if constexpr (std::is_void_v<R>) {
      promise.set_value();
    } else {
      promise.set_value(unpack_result<R>(std::move(packet), function, peer));
    }
  } catch (...) {
    promise.set_exception(std::current_exception());
  }
}

}  // namespace farad::detail
