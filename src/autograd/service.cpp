#include "autograd/service.h"

#include <c10/core/GradMode.h>

#include "autograd/current.h"
#include "autograd/pass_mail.h"
#include "rpc/protocol.h"

namespace farad::autograd {

Service::Service(std::shared_ptr<const Group> group, uint64_t birth, Backward::Services services)
    : fabric_(services.fabric),
      warn_(services.warn),
      later_(services.later),
      contexts_(group, birth, services_of_contexts()),
      recorder_(group->self, birth, contexts_),
      backward_(std::move(services), contexts_, recorder_) {}

Contexts::Services Service::services_of_contexts() {
  Contexts::Services services;
  services.post = [this](base::Rank to, wire::Bytes news) {
    wire::Message message;
    message.kind = static_cast<uint8_t>(rpc::Kind::Above);
    message.body.push_back(static_cast<char>(Mail::News));
    message.body.insert(message.body.end(), news.begin(), news.end());
    return fabric_.post(to, std::move(message)).status.ok();
  };
  services.later = [this](std::function<void()> task) {
    later_([this, task = std::move(task)] { backward_.run_on_timer(task); });
  };
  services.perform = [this](const std::shared_ptr<LocalContext>& context, LocalContext::Work&& work) {
    backward_.perform(context, std::move(work));
  };
  return services;
}

std::function<void()> Service::bind(std::function<void()> task) {
  auto context = current();
  const Path path = context ? next_path(&contexts_) : 0;
  return [this, context = std::move(context), path, rerun = current_rerun(), grad = c10::GradMode::is_enabled(),
          task = std::move(task)] {
    const CurrentScope scope(&contexts_, context, path);
    const RerunScope again(rerun);
    const c10::AutoGradMode mode(grad);
    task();
  };
}

std::shared_ptr<rpc::Interceptor::Made> Service::on_call(base::Rank to, const rpc::Callee& callee,
                                                         const std::vector<at::Tensor>& arguments, wire::Bytes& note) {
  auto context = current();
  if (context) backward_.send_commits(*context, to);
  return recorder_.on_call(std::move(context), to, callee, arguments, note);
}

std::unique_ptr<rpc::Interceptor::Taken> Service::on_arrival(net::Peer from, const rpc::Callee& callee,
                                                             std::span<const char> note,
                                                             std::vector<at::Tensor>& arguments, base::Status& status) {
  return recorder_.on_arrival(from, callee, note, arguments, status);
}

void Service::on_late_result(net::Peer from, std::span<const char> note) { recorder_.on_late_result(from, note); }

void Service::on_unsent_reply(net::Peer to, uint64_t call) { contexts_.drop_reply(to, call); }

void Service::on_message(net::Peer from, wire::Message&& message) {
  const auto what = message.body.empty() ? char{0} : message.body[0];
  if (what == static_cast<char>(Mail::Pass)) {
    backward_.on_message(from, std::move(message));
  } else if (what == static_cast<char>(Mail::News)) {
    const auto status = contexts_.on_news(from, std::span(message.body).subspan(1));
    if (!status.ok()) warn_(status);
  } else if (what == static_cast<char>(Mail::Vain)) {
    const auto status = backward_.on_vain(message.body);
    if (!status.ok()) warn_(status);
  } else {
    warn_({base::Code::Protocol,
           "[autograd] a message that is none, of " + std::to_string(message.body.size()) + " bytes"});
  }
}

void Service::on_unsent(net::Peer to, const wire::Message& message, const base::Status& why) {
  if (!message.body.empty() && message.body[0] == static_cast<char>(Mail::Pass)) {
    backward_.on_unsent(to, message, why);
  }
}

void Service::on_lost(net::Peer peer, const base::Status&) { contexts_.on_lost(peer); }

}  // namespace farad::autograd
