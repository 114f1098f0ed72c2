#include "rpc/incall.h"

#include <cxxabi.h>
#include <farad/error.h>

#include <cstdlib>
#include <utility>

#include "rpc/agent.h"

namespace farad::rpc {
namespace {

thread_local Incall* incall_here = nullptr;

}  // namespace

std::string type_of(const std::exception& error) {
  int status = 0;
  char* name = abi::__cxa_demangle(typeid(error).name(), nullptr, nullptr, &status);
  std::string text = status == 0 ? name : typeid(error).name();
  std::free(name);
  return text;
}

Failure describe(const std::exception_ptr& error) {
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
    }
  } catch (const c10::Error& e) {
    failure.type = type_of(e);
    failure.text = e.what_without_backtrace();
  } catch (const std::exception& e) {
    failure.type = type_of(e);
    failure.text = e.what();
  } catch (...) {
    failure.type = "unknown";
    failure.text = "something that is no std::exception was thrown";
  }
  return failure;
}

Incall::Incall(Agent& agent, net::Peer from, wire::Message message)
    : agent_(agent), from_(from), message_(std::move(message)) {}

Incall* Incall::current() { return incall_here; }

detail::Writer Incall::result() { return {result_.body, result_.tensors}; }

void Incall::result_later(std::shared_ptr<detail::FutureCore> core, std::function<void(detail::Writer&)> write) {
  later_ = true;
  core->when_ready([self = shared_from_this(), core, write = std::move(write)] {
    try {
      if (core->error()) std::rethrow_exception(core->error());
      detail::Writer out = self->result();
      write(out);
      self->reply();
    } catch (...) {
      self->fail(std::current_exception());
    }
    self->agent_.finished(self);
  });
}

void Incall::run() {
  const auto keep = shared_from_this();
  incall_here = this;
  result_.body.push_back(good);
  try {
    agent_.host_.run_as_worker([this] { run_function(); });
    if (!later_) reply();
  } catch (...) {
    later_ = false;
    fail(std::current_exception());
  }
  incall_here = nullptr;
  if (!later_) agent_.finished(keep);
}

void Incall::run_function() {
  size_t arguments_at = 0;
  decode_call(message_, header_, name_, arguments_at).raise();
  if (cancelled()) return;
  arguments_.emplace(std::span(message_.body).subspan(arguments_at), message_.tensors);
  const detail::Function* function =
      name_.empty() ? detail::find_function(header_.function) : detail::find_function(std::string_view(name_));
  if (!function) {
    throw detail::BadArguments(
        name_.empty() ? "[rpc] the called function is not known here: the two programs are not of the same build; make "
                        "it known with FARAD_REMOTE and call it by name"
                      : "[rpc] there is no function \"" + name_ + "\" here: FARAD_REMOTE makes one known");
  }
  function->run(*this);
}

void Incall::reply() {
  if (cancelled() || header_.one_way) return;
  wire::Message message;
  message.kind = static_cast<uint8_t>(Kind::Reply);
  message.tag = id();
  message.body = std::move(result_.body);
  message.tensors = std::move(result_.tensors);
  const auto sent = agent_.fabric_->post(from_.rank, std::move(message));
  // If the caller or the worker is gone, nobody is there to be told. What cannot travel is the function's fault.
  if (sent.status.code() == base::Code::Invalid) fail(Failure{base::Code::Invalid, {}, "[rpc] its result " + sent.status.message(), {}});
}

void Incall::fail(const std::exception_ptr& error) { fail(describe(error)); }

void Incall::fail(const Failure& failure) {
  if (cancelled() || header_.one_way) return;
  (void)agent_.fabric_->post(from_.rank, encode_failure(id(), failure)).status;
}

}  // namespace farad::rpc

namespace farad {

bool cancelled() {
  auto* call = rpc::Incall::current();
  return call && call->cancelled();
}

}  // namespace farad
