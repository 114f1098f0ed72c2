#pragma once

#include <farad/error.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace farad {

template <class T>
class Future;
template <class T>
class Promise;

namespace detail {

class FutureCore;

/// Who knows how to wait for a worker's futures (by taking messages in meanwhile) and where continuations run.
class FutureHost {
 public:
  virtual ~FutureHost() = default;
  /// Returns when core.ready() or at the deadline.
  virtual void wait(FutureCore& core, std::chrono::steady_clock::time_point deadline) = 0;
  virtual void run(std::function<void()> continuation) = 0;  ///< see Refusal
  /// A continuation that will see what is current on this thread now: its context, its grad mode.
  virtual std::function<void()> bind(std::function<void()> continuation) { return continuation; }
  virtual std::chrono::steady_clock::time_point now() const = 0;  ///< a simulated one has its own clock
};

/// The worker that this thread runs for (Worker::current()), as a host; null elsewhere.
std::shared_ptr<FutureHost> current_host();

/// A host that has no thread for what comes next runs it all the same, inside one of these: it is to fail with `why`,
/// and to do nothing else that may last.
class Refusal {
 public:
  explicit Refusal(std::exception_ptr why);
  ~Refusal();
  Refusal(const Refusal&) = delete;
  /// Null if there is none on this thread.
  static std::exception_ptr here();

 private:
  const std::exception_ptr why_;
  const Refusal* const before_;
};

/// The part of a future that does not depend on its type: whether it is ready, who waits, what comes next.
/// Any thread may call anything.
class FutureCore {
 public:
  explicit FutureCore(std::shared_ptr<FutureHost> host) : host_(std::move(host)) {}

  bool ready() const { return ready_.load(std::memory_order_acquire); }
  /// True if ready.
  bool wait(std::chrono::steady_clock::time_point deadline);
  bool wait_for(std::chrono::steady_clock::duration span);
  /// The same of a span that may be more than a clock can tell, as milliseconds::max() is.
  template <class Rep, class Period>
  bool wait_for(std::chrono::duration<Rep, Period> span) {
    using Span = std::chrono::steady_clock::duration;
    if (span <= span.zero()) return wait_for(Span::zero());
    const bool endless = std::chrono::duration<double>(span) >= std::chrono::duration<double>(Span::max()) / 2;
    return wait_for(endless ? Span::max() : std::chrono::duration_cast<Span>(span));
  }
  /// Runs `next` once ready, also if that is now: at the host, or without one on the thread that completes.
  void when_ready(std::function<void()> next);
  /// The same at `host`, or as above without one, and so that `next` sees what is current on this thread now. That of a
  /// future that has one, or what current_host() gives.
  void when_ready_at(const std::shared_ptr<FutureHost>& host, std::function<void()> next);
  /// Like when_ready, but on the thread that completes; for what is short and takes no lock. Gives what forget() takes.
  uint64_t notify(std::function<void()> wake);
  /// Who was to be told does not wait any more. Nothing happens if that was called, or is about to be.
  void forget(uint64_t wake);

  /// Called on each thread that gets the value, before it does: by wait(), or in front of what runs when it is ready.
  /// To be set by whoever completes it, before that.
  void set_reader(std::function<void()> reader);
  /// Once ready: what was set, for who hands the value on by another future. May be empty.
  const std::function<void()>& reader() const { return reader_; }

  /// Runs `fill` and becomes ready, unless it was already: the first to complete wins. True if it was this call.
  bool complete(const std::function<void()>& fill);
  bool fail(std::exception_ptr error);
  const std::exception_ptr& error() const { return error_; }  ///< once ready

  /// Gives what it was that was cancelled: `[rpc] call of "f" to worker1`; empty if nobody knows.
  std::string cancel();
  /// By one of those who waited for it, who does so no longer: cancel() if somebody has set what to tell, or sets it
  /// later. A future that nobody could stop stays as it is, because others may wait for it as well.
  std::string give_up();
  /// Called at most once, if somebody cancels before it is ready, or has: then at once. Gives what it stopped, for the
  /// error.
  void set_cancel(std::function<std::string()> hook);
  const std::shared_ptr<FutureHost>& host() const { return host_; }

 private:
  bool claim();
  void finish(const std::function<void()>& fill);
  bool read();
  void run(std::function<void()> next);

  const std::shared_ptr<FutureHost> host_;
  std::mutex mutex_;
  std::atomic<bool> ready_{false};
  bool completing_ = false;
  bool cancelled_ = false;
  bool given_up_ = false;  // when there was nobody to tell
  std::exception_ptr error_;
  uint64_t told_ = 0;  // how often notify() was called
  std::vector<std::pair<uint64_t, std::function<void()>>> wakes_;
  std::vector<std::function<void()>> nexts_;
  std::function<std::string()> cancel_;
  std::function<void()> reader_;  // Constant once ready.
};

/// Gives `core` up, if anybody has it still: the hook of what comes of it.
inline std::function<std::string()> canceller(const std::weak_ptr<FutureCore>& core) {
  return [core] {
    const auto origin = core.lock();
    return origin ? origin->give_up() : std::string();
  };
}

/// A future of nothing still has to hold something.
struct Nothing {};
template <class T>
using Stored = std::conditional_t<std::is_void_v<T>, Nothing, T>;
/// What many futures of T become together.
template <class T>
struct Together {
  using type = std::vector<T>;
};
template <>
struct Together<void> {
  using type = void;
};
template <class T>
using All = typename Together<T>::type;

template <class T>
struct FutureState : FutureCore {
  using FutureCore::FutureCore;
  std::optional<Stored<T>> value;
};

template <class T>
struct FutureValue {
  using type = T;
  static constexpr bool is_future = false;
};
template <class T>
struct FutureValue<Future<T>> {
  using type = T;
  static constexpr bool is_future = true;
};

/// Calls a continuation with the value, or with a copy of it if that is what it takes (T&&).
template <class F, class T>
decltype(auto) call_with(F& fn, const T& value) {
  if constexpr (std::is_invocable_v<F&, const T&>) {
    return std::invoke(fn, value);
  } else {
    return std::invoke(fn, T(value));
  }
}
template <class F, class T>
struct ThenResult {
  using type = decltype(call_with(std::declval<F&>(), std::declval<const T&>()));
};
template <class F>
struct ThenResult<F, void> {
  using type = std::invoke_result_t<F&>;
};

/// A std::function wants to be able to copy what it calls.
template <class F>
auto copyable(F fn) {
  if constexpr (std::is_copy_constructible_v<F>) {
    return fn;
  } else {
    return [held = std::make_shared<F>(std::move(fn))]<class... A>(A&&... arguments) -> decltype(auto)
             requires std::is_invocable_v<F&, A...>
    { return std::invoke(*held, std::forward<A>(arguments)...); };
  }
}

}  // namespace detail

/// A value that comes later, or the error that came instead. Copies share it. Any thread may use its own copy.
template <class T>
class Future {
 public:
  using value_type = T;

  /// A future of nothing: valid() is false and only assignment makes sense.
  Future() = default;

  bool valid() const { return state_ != nullptr; }
  bool ready() const { return state().ready(); }

  /// The value, or the error thrown; as often as asked.
  T wait() const {
    state().wait(std::chrono::steady_clock::time_point::max());
    return get();
  }

  /// True if ready within `span`.
  template <class Rep, class Period>
  bool wait_for(std::chrono::duration<Rep, Period> span) const {
    return state().wait_for(span);
  }

  /// `fn` gets the value once it is there; the result is a future of what `fn` returns (of R, if that is a Future<R>).
  /// An error passes `fn` by and appears in the result. `fn` runs on a thread of the worker whose future this is, or,
  /// if it is nobody's, of the worker that then() is called for; without one, on the thread that completes it.
  template <class F>
  auto then(F fn) const {
    using Returned = typename detail::ThenResult<F, T>::type;
    using R = typename detail::FutureValue<std::decay_t<Returned>>::type;
    const auto host = state().host() ? state().host() : detail::current_host();
    Promise<R> promise(host);
    promise.future().core()->set_cancel(detail::canceller(state_));
    state().when_ready_at(host, [self = *this, promise, fn = detail::copyable(std::move(fn))]() mutable {
      if (self.state().error()) return promise.set_exception(self.state().error());
      if (const auto why = detail::Refusal::here()) return promise.set_exception(why);
      try {
        auto call = [&]() -> Returned {
          if constexpr (std::is_void_v<T>) {
            return std::invoke(fn);
          } else {
            return detail::call_with(fn, *self.state_->value);
          }
        };
        if constexpr (detail::FutureValue<std::decay_t<Returned>>::is_future) {
          promise.follow(call());
        } else if constexpr (std::is_void_v<R>) {
          call();
          promise.set_value();
        } else {
          promise.set_value(call());
        }
      } catch (...) {
        promise.set_exception(std::current_exception());
      }
    });
    return promise.future();
  }

  /// If it is not ready, it becomes so with Cancelled, and whoever works on it is told: the function that was called, a
  /// promise's on_cancel(), and those behind it where it came of others. A promise that did not ask to be told stays.
  void cancel() const { state().cancel(); }

  /// For those who build on futures: the part that does not depend on T.
  std::shared_ptr<detail::FutureCore> core() const { return state_; }

 private:
  template <class>
  friend class Future;
  friend class Promise<T>;
  template <class U>
  friend Future<detail::All<U>> when_all(std::vector<Future<U>>);

  explicit Future(std::shared_ptr<detail::FutureState<T>> state) : state_(std::move(state)) {}

  detail::FutureState<T>& state() const {
    if (!state_) throw Error("[future] used before it was given a value: this Future was default-constructed");
    return *state_;
  }

  T get() const {
    if (state_->error()) std::rethrow_exception(state_->error());
    if constexpr (!std::is_void_v<T>) return *state_->value;
  }

  std::shared_ptr<detail::FutureState<T>> state_;
};

/// The giving end of a Future. Copies share it. The first value or error counts; later ones are ignored, so that a
/// result and a cancellation may race. If every copy goes without either, the future fails with Cancelled.
template <class T>
class Promise {
 public:
  Promise() : Promise(nullptr) {}
  explicit Promise(std::shared_ptr<detail::FutureHost> host)
      : hold_(std::make_shared<Hold>(std::make_shared<detail::FutureState<T>>(std::move(host)))) {}

  Future<T> future() const { return Future<T>(hold_->state); }

  template <class U = detail::Stored<T>>
  void set_value(U&& value = {}) const {
    auto& state = *hold_->state;
    state.complete([&] { state.value.emplace(std::forward<U>(value)); });
  }
  void set_exception(std::exception_ptr error) const { hold_->state->fail(std::move(error)); }

  /// Called at most once, on the cancelling thread, if the future is cancelled before it is ready; at once, if it has
  /// been already.
  void on_cancel(std::function<void()> hook) const {
    hold_->state->set_cancel([hook = std::move(hook)] { return hook(), std::string(); });
  }

  /// Takes whatever `other` becomes. Whoever cancels the future tells those who work on `other`.
  void follow(Future<T> other) const {
    hold_->state->set_cancel(detail::canceller(other.state_));
    other.state().when_ready([self = *this, other] {
      if (other.state_->error()) return self.set_exception(other.state_->error());
      auto& state = *self.hold_->state;
      if (other.state_->reader()) state.set_reader(other.state_->reader());
      state.complete([&] { state.value = other.state_->value; });
    });
  }

 private:
  struct Hold {
    explicit Hold(std::shared_ptr<detail::FutureState<T>> s) : state(std::move(s)) {}
    ~Hold() {
      if (!state->ready())
        state->fail(std::make_exception_ptr(Cancelled("[future] the promise was dropped without a value")));
    }
    const std::shared_ptr<detail::FutureState<T>> state;
  };
  std::shared_ptr<Hold> hold_;
};

/// All values in order, once all are there; the first error, as soon as there is one. Of Future<void>: a Future<void>.
/// Whoever cancels it tells those who work on any that is not ready.
template <class T>
Future<detail::All<T>> when_all(std::vector<Future<T>> futures) {
  Promise<detail::All<T>> promise(futures.empty() ? nullptr : futures.front().state().host());
  if (futures.empty()) {
    promise.set_value();
    return promise.future();
  }
  std::vector<std::weak_ptr<detail::FutureCore>> cores;
  for (const auto& future : futures) cores.push_back(future.core());
  promise.future().core()->set_cancel([cores = std::move(cores)] {
    std::string what;
    std::exception_ptr thrown;  // by what one was told; the others hear of it all the same
    for (const auto& core : cores) {
      try {
        const auto stopped = detail::canceller(core)();
        if (what.empty()) what = stopped;
      } catch (...) {
        thrown = std::current_exception();
      }
    }
    if (thrown) std::rethrow_exception(thrown);
    return what;
  });
  auto left = std::make_shared<std::atomic<size_t>>(futures.size());
  for (const auto& future : futures) {
    future.state().when_ready([future, futures, promise, left] {
      if (future.state_->error()) return promise.set_exception(future.state_->error());
      if (left->fetch_sub(1) > 1) return;
      if constexpr (std::is_void_v<T>) {
        promise.set_value();
      } else {
        std::vector<T> values;
        std::vector<std::function<void()>> readers;
        values.reserve(futures.size());
        for (const auto& f : futures) {
          values.push_back(*f.state_->value);
          if (f.state_->reader()) readers.push_back(f.state_->reader());
        }
        if (!readers.empty()) {
          promise.future().core()->set_reader([readers = std::move(readers)] {
            for (const auto& reader : readers) reader();
          });
        }
        promise.set_value(std::move(values));
      }
    });
  }
  return promise.future();
}
template <class T>
Future<detail::All<T>> when_all(std::initializer_list<Future<T>> futures) {
  return when_all(std::vector<Future<T>>(futures));
}

}  // namespace farad
