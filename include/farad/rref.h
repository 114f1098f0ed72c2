#pragma once

#include <farad/detail/reference.h>
#include <farad/worker.h>

#include <chrono>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace farad {

/// A counted handle to one value that lives on one worker, its owner.
///
/// Passing an RRef to a call lends it to the callee; the owner frees the value once no worker holds a handle. T may be
/// anything the owner can hold, also what cannot travel. Any thread may use its own copy; one copy is not shared
/// between threads. An RRef<void> is what `remote` of a function without result gives: to_here() waits until it has
/// run.
template <class T>
class RRef {
  using Value = detail::Stored<T>;

 public:
  /// A reference to nothing: only assignment makes sense.
  RRef() = default;
  explicit RRef(std::shared_ptr<detail::RefHandle> handle) : handle_(std::move(handle)) {}

  /// Owned here.
  static RRef local(Worker& worker, Value value, const std::source_location& where = std::source_location::current()) {
    return RRef(detail::own(worker, std::make_shared<Value>(std::move(value)), where));
  }

  WorkerInfo owner() const { return detail::owner_of(handle()); }
  bool is_owner() const { return detail::is_owner(handle()); }
  /// Whether the owner knows of it: the value was made there, or its making failed.
  bool confirmed() const { return detail::is_confirmed(handle()); }

  /// Copies the value here. Throws PeerLost if the owner is gone, Timeout if `timeout` passes first (unset: the
  /// worker's rpc_timeout), and what the making of the value threw, each time.
  T to_here(std::optional<std::chrono::milliseconds> timeout = {}) const {
    (void)&detail::RemoteFetch<T>::known;
    detail::Outcall call{&detail::RemoteFetch<T>::function, {}, {}};
    return detail::unpack_result<T>(detail::call_on(shared(), std::move(call), {timeout}), "to_here",
                                    [&] { return owner().name; });
  }

  /// The value itself, on the owner; elsewhere throws.
  Value& local_value() const { return *static_cast<Value*>(detail::value_of(handle())); }

  /// Runs Fn(T&, args...) or the member function at the owner, and gives its result.
  template <auto Fn, class... A>
  auto rpc_sync(A&&... args) const {
    return detail::unpack_result<Result<Fn>>(detail::call_on(shared(), method<Fn, false>(std::forward<A>(args)...), {}),
                                             detail::function_name<Fn>, [&] { return owner().name; });
  }
  template <auto Fn, class... A>
  auto rpc_async(A&&... args) const {
    using R = Result<Fn>;
    Promise<R> promise(detail::host_of(handle(), detail::function_name<Fn>));
    detail::start_on(shared(), method<Fn, false>(std::forward<A>(args)...), {}, promise.future().core(),
                     [promise, ref = *this](detail::Packet packet) {
                       detail::fulfil<R>(promise, std::move(packet), detail::function_name<Fn>,
                                         [&] { return ref.owner().name; });
                     });
    return promise.future();
  }
  /// The same, but the result stays with the owner.
  template <auto Fn, class... A>
  auto remote(A&&... args) const {
    return RRef<Result<Fn>>(detail::remote_on(shared(), method<Fn, true>(std::forward<A>(args)...), {}));
  }

 private:
  friend struct detail::Codec<RRef>;

  template <auto Fn, bool Keep, class... A>
  detail::Outcall method(A&&... args) const {
    using Values = detail::ValuesOf<typename detail::MethodParameters<Fn>::type>;
    static_assert(Values::takes_values, "[farad] a remote method takes values, const& or &&");
    static_assert(sizeof...(A) == std::tuple_size_v<typename Values::type>,
                  "[farad] wrong number of arguments for this remote method");
    using Known = detail::RemoteMethod<T, Fn, Keep>;
    (void)&Known::known;
    detail::Outcall call{&Known::function, {}, {}};
    call.arguments.body.reserve(detail::Packet::usual_bytes);
    detail::Writer out(call.arguments.body, call.arguments.tensors, call.arguments.references,
                       detail::limits_of(handle(), detail::function_name<Fn>));
    try {
      detail::write_each(out, typename Values::type(std::forward<A>(args)...));
    } catch (const Error&) {
      detail::not_packed(detail::function_name<Fn>, owner().name);
    }
    return call;
  }

  const detail::RefHandle& handle() const { return *shared(); }
  const std::shared_ptr<detail::RefHandle>& shared() const {
    if (!handle_) throw Error("[ref] this RRef refers to nothing: it was default-constructed");
    return handle_;
  }

  std::shared_ptr<detail::RefHandle> handle_;  // Keeps the value alive at its owner.
};

namespace detail {

template <class T>
struct Codec<RRef<T>> {
  static void write(Writer& out, const RRef<T>& value) { out.reference(value.shared()); }
  static bool read(Reader& in, RRef<T>& value) { return in.reference(value.handle_); }
};

}  // namespace detail

namespace detail {

/// A module, or what holds one.
template <class Module>
std::vector<RRef<at::Tensor>> parameters_of(Module& module) {
  const auto tensors = [&] {
    if constexpr (requires { module.parameters(); }) {
      return module.parameters();
    } else {
      return module->parameters();
    }
  }();
  std::vector<RRef<at::Tensor>> references;
  for (const auto& tensor : tensors) references.push_back(RRef<at::Tensor>::local(Worker::current(), tensor));
  return references;
}

}  // namespace detail

/// References to the parameters of a module that lives elsewhere: the very tensors, which stay with their owner.
template <class Module>
std::vector<RRef<at::Tensor>> parameters(const RRef<Module>& module) {
  return module.template rpc_sync<detail::parameters_of<Module>>();
}

template <auto Fn, class... A>
RRef<Result<Fn>> Caller::remote(const Peer& to, A&&... args) const {
  const int rank = rank_of(to, detail::function_name<Fn>);
  auto call = outcall<Fn, detail::RemoteKept<Fn>>(rank, std::forward<A>(args)...);
  return RRef<Result<Fn>>(detail::remote_at(core_, rank, std::move(call), options_));
}

}  // namespace farad
