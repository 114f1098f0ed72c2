#include <farad/rref.h>

#include "base/check.h"
#include "ref/table.h"
#include "worker_core.h"

namespace farad::detail {
namespace {

std::string owner_name(const RefHandle& handle) { return handle.table->name_of(handle.owner); }

/// What errors begin with: `[ref] "forward" on a value of worker1`.
std::string text_of(const RefHandle& handle, std::string_view doing) {
  return "[ref] \"" + std::string(doing) + "\" on a value of " + owner_name(handle);
}

/// References reach their worker through its table, which knows it weakly: a reference keeps no worker alive.
std::shared_ptr<WorkerCore> core_of(const RefHandle& handle, std::string_view doing) {
  auto core = handle.table->core().lock();
  if (!core) throw Closed(text_of(handle, doing) + ": the worker that held this reference is gone");
  return core;
}

/// The worker to call from, unless it is known already that there is nothing to be called.
std::shared_ptr<WorkerCore> caller_of(const RefHandle& handle, const Outcall& call) {
  auto core = core_of(handle, call.function->name);
  if (core->agent().ended()) return core;  // It says so itself. That all others have gone by then is no loss.
  if (auto failure = handle.failure()) std::rethrow_exception(failure);
  if (handle.lost) throw PeerLost(text_of(handle, call.function->name) + ", which was lost");
  return core;
}

/// The call that was to make a value never ran, because of `why`. If it was to live here, nobody else will tell those
/// who wait for it.
void never_made(const RefHandle& handle, const std::exception_ptr& why) {
  if (is_owner(handle)) handle.table->fail(handle.id, why);
}

/// Of one that was given up, it is not known whether it runs.
bool is_given_up(const std::exception_ptr& error) {
  const auto code = base::status_of(error).code();
  return code == base::Code::Timeout || code == base::Code::Cancelled;
}

std::shared_ptr<RefHandle> make_at(WorkerCore& core, base::Rank owner, Outcall call, const CallOptions& options) {
  auto handle = core.table().begin(owner, call.function ? call.function->name : std::string_view(call.name));
  call.makes = handle->id;
  // Given up, the call may still come to make the value; the owner must hear of our letting go after that.
  call.keep = std::make_shared<std::pair<std::shared_ptr<RefHandle>, std::shared_ptr<const void>>>(handle, call.keep);
  Promise<void> made;
  auto future = made.future();
  // Until the owner has answered the reference holds on to itself, so that it is not given up before it exists.
  future.core()->when_ready([handle, core = future.core()] {
    if (const auto& error = core->error()) {
      handle->fail(error);
      if (!is_given_up(error)) never_made(*handle, error);
    }
    handle->table->confirm(handle);
  });
  // What the world does to us is thrown at the first use. Transports differ in when they know.
  const auto fails_later = [&] {
    never_made(*handle, std::current_exception());
    made.set_exception(std::current_exception());
  };
  try {
    core.agent().start(owner, std::move(call), options, future.core(), [made](Packet) { made.set_value(); });
  } catch (const PeerLost&) {
    fails_later();
  } catch (const Timeout&) {  // There was no room in its queue.
    fails_later();
  } catch (...) {
    never_made(*handle, std::current_exception());
    throw;
  }
  return handle;
}

}  // namespace

Function RemoteFetch<at::Tensor>::function{"to_here", &run_fetch<at::Tensor>};
const bool RemoteFetch<at::Tensor>::known = register_everywhere(function, 1);

std::shared_ptr<RefHandle> own(Worker& worker, std::shared_ptr<void> value, const std::source_location& where) {
  std::string file = where.file_name();
  file = file.substr(file.rfind('/') + 1);  // Where it was compiled is nobody's business.
  return WorkerCore::of(worker).table().own(std::move(value),
                                            "RRef::local at " + file + ":" + std::to_string(where.line()));
}

WorkerInfo owner_of(const RefHandle& handle) { return {owner_name(handle), handle.owner.value}; }

bool is_owner(const RefHandle& handle) { return handle.hold == 0; }
bool is_confirmed(const RefHandle& handle) {
  return is_owner(handle) ? handle.table->is_ready(handle.id) : handle.confirmed.load();
}

void* value_of(const RefHandle& handle) {
  if (!is_owner(handle)) {
    throw Error("[ref] local_value(): the value lives on " + owner_name(handle) +
                "; use to_here(), or call a function on it");
  }
  if (auto failure = handle.failure()) std::rethrow_exception(failure);
  Promise<std::shared_ptr<void>> promise(handle.table->core().lock());
  handle.table->when_ready(handle.id, [promise](std::shared_ptr<void> value, std::exception_ptr error) {
    error ? promise.set_exception(error) : promise.set_value(std::move(value));
  });
  return promise.future().wait().get();
}

Packet call_on(const std::shared_ptr<RefHandle>& handle, Outcall call, const CallOptions& options) {
  const auto core = caller_of(*handle, call);
  call.object = handle->id;
  call.keep = handle;
  return core->agent().call(handle->owner, std::move(call), options);
}

void start_on(const std::shared_ptr<RefHandle>& handle, Outcall call, const CallOptions& options,
              std::shared_ptr<FutureCore> future, std::function<void(Packet)> done) {
  const auto core = caller_of(*handle, call);
  call.object = handle->id;
  call.keep = handle;
  // The handle stays until the answer is there: the value must not go away under the call.
  core->agent().start(handle->owner, std::move(call), options, std::move(future),
                      [handle, done = std::move(done)](Packet packet) { done(std::move(packet)); });
}

std::shared_ptr<RefHandle> remote_on(const std::shared_ptr<RefHandle>& handle, Outcall call,
                                     const CallOptions& options) {
  const auto core = caller_of(*handle, call);
  call.object = handle->id;
  call.keep = handle;
  return make_at(*core, handle->owner, std::move(call), options);
}

std::shared_ptr<RefHandle> remote_at(const std::shared_ptr<WorkerCore>& core, int rank, Outcall call,
                                     const CallOptions& options) {
  return make_at(*core, base::Rank(static_cast<uint16_t>(rank)), std::move(call), options);
}

ValueLimits limits_of(const RefHandle& handle, std::string_view function) {
  return core_of(handle, function)->agent().limits();
}

std::shared_ptr<FutureHost> host_of(const RefHandle& handle, std::string_view function) {
  return core_of(handle, function);
}

}  // namespace farad::detail
