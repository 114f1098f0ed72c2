#include "rpc/incall.h"

#include <cxxabi.h>
#include <farad/detail/by_name.h>
#include <farad/error.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "rpc/agent.h"
#include "rpc/operators.h"
#include "wire/device.h"

namespace farad::rpc {
namespace {

thread_local Incall* incall_here = nullptr;
constexpr char cannot_travel[] = "[rpc] its result cannot travel: ";

std::string name_of(const std::type_info& type) {
  int status = 0;
  char* name = abi::__cxa_demangle(type.name(), nullptr, nullptr, &status);
  std::string text = status == 0 ? name : type.name();
  std::free(name);
  return text;
}

}  // namespace

std::string type_of(const std::exception& error) { return name_of(typeid(error)); }

namespace {

/// libtorch's exceptions know where they were thrown, and say so behind what they say. How else one asks for it differs
/// between versions.
std::string stack_of(const c10::Error& error) {
  const std::string all = error.what(), text = error.what_without_backtrace();
  return all.starts_with(text) ? all.substr(std::min(all.size(), text.size() + 1)) : all;
}

}  // namespace

Failure describe(const std::exception_ptr& error, bool with_stack) {
  Failure failure;
  try {
    std::rethrow_exception(error);
  } catch (const detail::BadArguments& e) {
    failure.code = base::Code::Invalid;
    failure.text = e.what_without_backtrace();
  } catch (const RemoteError& e) {
    if (e.hops().empty()) {
      failure.type = type_of(e);
      failure.text = e.what_without_backtrace();
    } else {
      failure.type = e.type();
      failure.text = e.text();
      failure.hops.assign(e.hops().begin() + 1, e.hops().end());  // The first is ourselves.
      failure.stack = e.stack();
    }
  } catch (const c10::Error& e) {
    if (with_stack) failure.stack = stack_of(e);
    failure.type = type_of(e);
    failure.text = e.what_without_backtrace();
  } catch (const std::exception& e) {
    failure.type = type_of(e);
    failure.text = e.what();
  } catch (const std::string& text) {
    failure.type = "std::string";
    failure.text = text;
  } catch (const char* text) {
    failure.type = "char const*";
    failure.text = text;
  } catch (...) {
    const auto* type = abi::__cxa_current_exception_type();
    failure.type = type ? name_of(*type) : "unknown";
    failure.text = "something that is no std::exception was thrown";
  }
  return failure;
}

Incall::Incall(Agent& agent, net::Peer from, wire::Message message, base::TimePoint since)
    : since(since), agent_(agent), from_(from), message_(std::move(message)) {}

std::string Incall::function() const {
  if (!header_.name.empty()) return header_.name;
  const auto* function = detail::find_function(header_.function);
  return function ? std::string(function->name) : "?";
}

Incall* Incall::current() { return incall_here; }

detail::Writer Incall::result() {
  result_.body.reserve(detail::Packet::usual_bytes);
  return {result_.body, result_.tensors, result_.references, agent_.options_.limits};
}

void Incall::keep(std::shared_ptr<void> value) { agent_.host_.references().keep(*header_.makes, std::move(value)); }

std::shared_ptr<detail::FutureCore> Incall::cancel() {
  cancelled_.store(true);  // First: whoever returns a future from here on sees it.
  base::Lock lock(mutex_);
  return returned_.lock();
}

/// Goes on when `core` is ready: nobody waits meanwhile.
void Incall::later(std::shared_ptr<detail::FutureCore> core, std::function<void()> finish) {
  if (!core) throw Error("[rpc] \"" + function() + "\" returned a Future that was default-constructed");
  later_ = true;
  {
    base::Lock lock(mutex_);
    returned_ = core;
  }
  core->when_ready([life = agent_.host_.life(), self = shared_from_this(), core, finish = std::move(finish)] {
    const auto alive = life.lock();  // The future may be anybody's, and outlive this worker.
    if (!alive) return;
    try {
      if (core->error()) std::rethrow_exception(core->error());
      if (const auto why = detail::Refusal::here()) std::rethrow_exception(why);
      finish();
      self->keep_result_of_name();
      self->reply();
    } catch (...) {
      self->fail(std::current_exception());
    }
    self->agent_.finished(self);
  });
  if (cancelled()) agent_.cancel_returned(std::move(core));
}

void Incall::result_later(std::shared_ptr<detail::FutureCore> core, std::function<void(detail::Writer&)> write) {
  later(std::move(core), [this, write = std::move(write)] {
    detail::Writer out = result();
    write(out);
  });
}

void Incall::keep_later(std::shared_ptr<detail::FutureCore> core, std::function<std::shared_ptr<void>()> make) {
  later(std::move(core), [this, make = std::move(make)] { keep(make()); });
}

void Incall::arrived() {
  arrival_ = decode_call(message_, header_, arguments_at_);
  if (!arrival_.ok()) return;
  const auto placed = wire::to_devices(message_);
  // Recorded even if not: the caller has recorded that it sent it.
  if (auto* above = agent_.host_.above(); above && !header_.note.empty()) {
    const auto* function = header_.name.empty() ? detail::find_function(header_.function) : nullptr;
    taken_ = above->on_arrival(from_, {function, header_.name}, header_.note, message_.tensors, arrival_);
  }
  if (arrival_.ok()) arrival_ = placed;
}

void Incall::run() {
  const auto self = shared_from_this();
  try {
    take_references();
    arrival_.raise();
    const detail::Function* function = find_function();
    if (!header_.object) return execute(function);
    agent_.host_.references().when_ready(*header_.object,
                                         [self, function](std::shared_ptr<void> value, std::exception_ptr error) {
                                           self->object_ = std::move(value);
                                           if (!error) error = detail::Refusal::here();
                                           if (!error) return self->execute(function);
                                           self->fail(error);
                                           self->agent_.finished(self);
                                         });
  } catch (...) {
    fail(std::current_exception());
    agent_.finished(self);
  }
}

void Incall::refuse(const base::Status& why) {
  arrival_ = why;
  run();
}

/// First of all, and whatever becomes of the call: the lender waits for us to have them, and why there is no value is
/// told to those who want it.
void Incall::take_references() {
  if (!header_.loans.empty()) references_ = agent_.host_.references().receive(from_, header_.loans, function());
  if (header_.makes) agent_.host_.references().expect(from_, *header_.makes, function());
}

const detail::Function* Incall::find_function() {
  arguments_.emplace(std::span(message_.body).subspan(arguments_at_), message_.tensors, agent_.options_.limits);
  arguments_->use(references_);
  const auto& name = header_.name;
  const detail::Function* function =
      name.empty() ? detail::find_function(header_.function) : detail::find_function(std::string_view(name));
  if (function || !name.empty()) return function;
  throw detail::BadArguments(
      "[rpc] the called function is not known here: the two programs are not of the same build; make it known with "
      "FARAD_REMOTE and call it by name");
}

void Incall::call_operator() {
  const auto value =
      run_operator(agent_.options_.operators, header_.name, detail::read_values(*arguments_, header_.name));
  detail::Writer out = result();
  detail::write(out, value);
}

void Incall::keep_result_of_name() {
  if (header_.name.empty() || !header_.makes) return;
  const auto value = detail::unpack_result<c10::IValue>(std::exchange(result_, {}), header_.name,
                                                        [&] { return agent_.name_of(agent_.fabric_->self().rank); });
  if (!value.isTensor()) {
    throw detail::BadArguments("[rpc] remote of \"" + header_.name +
                               "\": only a Tensor can be referred to, and it gives: " + detail::kind_of(value));
  }
  keep(std::make_shared<at::Tensor>(value.toTensor()));
}

void Incall::run_function(const detail::Function* function) {
  function ? function->run(*this) : call_operator();
  if (!later_) keep_result_of_name();
}

void Incall::execute(const detail::Function* function) {
  const auto self = shared_from_this();
  incall_here = this;
  try {
    // Others may have been lent what this call was to make: they are told, even if its maker does not care any more.
    if (cancelled()) {
      throw Cancelled("[rpc] call of \"" + this->function() + "\" from " + agent_.name_of(from_.rank) +
                      ": given up by its caller before it ran");
    }
    wire::use_here(message_.tensors);
    agent_.host_.run_as_worker([&] { taken_ ? taken_->run([&] { run_function(function); }) : run_function(function); });
    if (!later_) reply();
  } catch (...) {
    later_ = false;
    fail(std::current_exception());
  }
  incall_here = nullptr;
  if (!later_) agent_.finished(self);
}

void Incall::reply() {
  if (header_.one_way) return;
  if (cancelled()) return post_failure({base::Code::Cancelled, {}, "[rpc] given up by its caller", {}});
  if (!result_.references.empty()) {
    const auto fine = agent_.host_.references().may_lend(result_.references);
    if (!fine.ok()) return post_failure({base::Code::Invalid, {}, cannot_travel + fine.message(), {}});
  }
  ReplyHeader header;
  if (taken_) taken_->on_reply(id(), result_.tensors, header.note);
  if (!result_.references.empty()) header.loans = agent_.host_.references().lend(from_.rank, result_.references);
  auto message = encode_result(id(), header, std::move(result_));
  auto on_host = wire::to_host(message, wire::Complete::InCurrentStreams);
  const auto sent =
      on_host.ok() ? agent_.fabric_->post(from_.rank, std::move(message)) : net::Sent{std::move(on_host), {}};
  if (sent.status.ok()) {
    if (taken_) taken_->replied({from_.rank, sent.incarnation});
    if (!header.loans.empty()) agent_.host_.references().sent({from_.rank, sent.incarnation}, header.loans, {});
    return;
  }
  if (taken_) taken_->never_replied();
  if (!header.loans.empty()) agent_.host_.references().take_back(from_, header.loans);
  // If the caller or the worker is gone, nobody is there to be told. What cannot travel is the function's fault.
  if (sent.status.code() == base::Code::Invalid) {
    post_failure({base::Code::Invalid, {}, cannot_travel + sent.status.message(), {}});
  }
}

void Incall::fail(const std::exception_ptr& error) {
  if (!header_.makes) return post_failure(describe(error, agent_.options_.stacks));
  // It shows when the value is used. The maker only needs to know that we know.
  agent_.host_.references().fail(*header_.makes, error);
  result_ = {};
  reply();
}

void Incall::post_failure(const Failure& failure) {
  // Who has given up hears no more of it, unless it keeps a reference for us.
  if (header_.one_way || (cancelled() && !header_.object && !header_.makes)) return;
  (void)agent_.fabric_->post(from_.rank, encode_failure(id(), failure)).status;
}

}  // namespace farad::rpc

namespace farad {

bool cancelled() {
  auto* call = rpc::Incall::current();
  return call && call->cancelled();
}

}  // namespace farad
