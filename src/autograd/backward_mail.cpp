// What passes tell each other: how letters become messages, and what becomes of messages that came.

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>

#include "autograd/backward.h"
#include "autograd/current.h"
#include "wire/device.h"

namespace farad::autograd {

namespace {

constexpr char call_name[] = "a gradient";

bool is_recorded(std::span<const at::Tensor> tensors) {
  return std::any_of(tensors.begin(), tensors.end(), needs_gradient);
}

/// Calls `each` with every answer, and its own of the tensors.
template <class Each>
void for_each_answer(const PassMessage& message, std::span<const at::Tensor> tensors, const Each& each) {
  size_t state = 0, first = 0;
  for (const auto& answer : message.answers) {
    const auto states = std::span(message.states).subspan(state, answer.tensors);
    const auto count = static_cast<size_t>(std::count(states.begin(), states.end(), TensorState::Tensor));
    each(answer, tensors.subspan(first, count));
    state += answer.tensors;
    first += count;
  }
}

/// The `number`-th pair of those that a message of a pass makes.
PairId pair_of(const PassMail& mail, uint32_t number) { return PairId(mail.pair.value + number); }

}  // namespace

void Backward::post(std::vector<Outbox::Parcel> parcels) {
  for (auto& parcel : parcels) {
    if (!is_timer_ || !hand_over(parcel)) post(parcel);
  }
}

/// What lies on a device has to be waited for. What does not goes at once, however busy the executor is.
bool Backward::hand_over(Outbox::Parcel& parcel) {
  const auto lies_there = [](const Outbox::Letter& letter) {
    return std::any_of(letter.tensors.begin(), letter.tensors.end(), wire::is_on_device);
  };
  if (std::none_of(parcel.letters.begin(), parcel.letters.end(), lies_there)) return false;
  services_.run(unknown_cost_, [this, kept = std::make_shared<Outbox::Parcel>(std::move(parcel))] { post(*kept); });
  return true;
}

/// One message. If a tensor in it is changed while it is written then it does not go: see on_unsent().
void Backward::post(Outbox::Parcel& parcel) {
  const auto to = parcel.to;
  std::vector<PassMail> mails;
  std::vector<at::Tensor> all;
  for (auto& [context, message, tensors] : parcel.letters) {
    auto& mail = mails.emplace_back();
    mail.message = std::move(message);
    mail.living = context->begin_message(to, LocalContext::Kind::Pass);
    if (tensors.empty()) continue;
    if (mail.living && is_recorded(tensors)) record_sent(*context, to, mail, tensors);
    if (all.empty()) {
      all = std::move(tensors);
    } else {
      std::move(tensors.begin(), tensors.end(), std::back_inserter(all));
    }
  }
  auto message = encode(mails, std::move(all));
  auto on_host = wire::to_host(message, wire::Complete::Now);  // See Evaluator::take().
  const auto sent = on_host.ok() ? services_.fabric.post(to, std::move(message)) : net::Sent{std::move(on_host), {}};
  if (sent.status.ok()) sent_.fetch_add(1, std::memory_order_relaxed);
  for (size_t i = 0; i < mails.size(); i++) {
    const auto& context = parcel.letters[i].context;
    const auto& mail = mails[i];
    if (sent.status.ok()) {
      for (uint32_t k = 0; k < mail.recorded; k++) contexts_.went(context, pair_of(mail, k), {to, sent.incarnation});
      continue;
    }
    for (uint32_t k = 0; k < mail.recorded; k++) contexts_.drop(context, pair_of(mail, k));
    if (sent.status.code() == base::Code::PeerLost) {
      perform(context, context->step([&](Passes& passes, Effects& effects) { passes.on_lost(to, effects); }));
    } else if (sent.status.code() != base::Code::Closed) {
      fail(context, mail.message.pass, sent.status);
    }
  }
}

/// A pair for each answer: which of them go in one message is chance, and must not show in the graph.
void Backward::record_sent(LocalContext& context, base::Rank to, PassMail& mail,
                           const std::vector<at::Tensor>& tensors) {
  const auto& message = mail.message;
  for_each_answer(message, tensors, [&](const Answer&, auto own) { mail.recorded += is_recorded(own); });
  mail.pair = recorder_.new_pairs(mail.recorded);
  uint32_t number = 0;
  for_each_answer(message, tensors, [&](const Answer& answer, auto own) {
    if (!is_recorded(own)) return;
    const Path path = path_of(context.path_of(answer.pair), message.pass);
    recorder_.record_send(context, to, call_name, {own.begin(), own.end()}, path, {}, 0, pair_of(mail, number++));
  });
}

base::Status Backward::record_received(const std::shared_ptr<LocalContext>& context, net::Peer from,
                                       const PassMail& mail, const std::vector<at::Tensor>& tensors) {
  const auto& message = mail.message;
  base::Status status;
  uint32_t number = 0;
  for_each_answer(message, tensors, [&](const Answer& answer, auto own) {
    if (!status.ok() || !is_recorded(own)) return;
    const auto count = static_cast<uint32_t>(std::count_if(own.begin(), own.end(), needs_gradient));
    const Path path = path_of(context->path_of(answer.pair), message.pass);
    status = recorder_.record_recv(context, pair_of(mail, number++),
                                   {from, count, call_name, {}, false, message.pass, path}, {own.begin(), own.end()});
  });
  if (!status.ok() || number == mail.recorded) return status;
  return {base::Code::Protocol, "[autograd] gradients of which " + std::to_string(number) +
                                    " answers can be differentiated, and which say " + std::to_string(mail.recorded)};
}

/// What had no tensors can go again. What had is as if it had never been sent: nobody would answer it, and its pass
/// cannot do without.
void Backward::on_unsent(net::Peer to, const wire::Message& message, const base::Status& why) {
  std::vector<PassMail> mails, again;
  if (auto status = decode(message, mails, MailHas::NoTensors); !status.ok()) return services_.warn(status);
  for (auto& mail : mails) {
    if (mail.tensors() == 0) {
      again.push_back(std::move(mail));
    } else if (const auto context = contexts_.find(mail.message.context)) {
      for (uint32_t k = 0; k < mail.recorded; k++) contexts_.drop(context, pair_of(mail, k));
      fail(context, mail.message.pass, why);
    }
  }
  if (!again.empty()) (void)services_.fabric.post(to.rank, encode(again, {})).status;
}

void Backward::on_message(net::Peer from, wire::Message&& message) {
  std::vector<PassMail> mails;
  if (auto status = decode(message, mails); !status.ok()) return services_.warn(status);
  // They are gradients of what was sent from here, so the devices are; but one may have no memory left.
  const auto placed = wire::to_devices(message);
  auto next = message.tensors.begin();
  for (auto& mail : mails) {
    const auto count = static_cast<ptrdiff_t>(mail.tensors());
    if (count > 0 && count == std::ssize(message.tensors)) {
      on_mail(from, mail, std::move(message.tensors), placed);
      next = message.tensors.end();
      continue;
    }
    const auto first = next;
    next += count;
    on_mail(from, mail, {std::make_move_iterator(first), std::make_move_iterator(next)}, placed);
  }
}

void Backward::on_mail(net::Peer from, PassMail& mail, std::vector<at::Tensor> tensors, const base::Status& placed) {
  const auto id = mail.message.context;
  const auto context = mail.living ? contexts_.take_message(id, from, LocalContext::Kind::Pass) : contexts_.find(id);
  if (!context) {
    std::vector<PassMail> answer(1);
    if (Passes::answer_released(services_.fabric.self().rank, mail.message, answer.front().message)) {
      (void)services_.fabric.post(from.rank, encode(answer, {})).status;
    }
    return;
  }
  if (!placed.ok() && !tensors.empty()) return refuse(context, from, mail, placed);
  if (mail.recorded > 0) {
    const auto status = record_received(context, from, mail, tensors);
    if (!status.ok()) return fail(context, mail.message.pass, status);
  }
  if (!tensors.empty()) mail.message.cargo = std::make_shared<const Cargo>(Cargo{std::move(tensors)});
  perform(context, context->step([&](Passes& passes, Effects& effects) {
    passes.on_message(from.rank, std::move(mail.message), effects);
  }));
}

/// Whoever waits for these gradients would do so for ever. The pass may not even have begun here: then it never does.
void Backward::refuse(const std::shared_ptr<LocalContext>& context, net::Peer from, const PassMail& mail,
                      const base::Status& why) {
  const auto pass = mail.message.pass;
  for (uint32_t k = 0; k < mail.recorded; k++) {
    contexts_.add(context, pair_of(mail, k), {from, 0, call_name, {}, false, pass});
  }
  PassMessage abort;
  abort.kind = PassKind::Abort;
  abort.context = context->id();
  abort.pass = pass;
  abort.failure = {why.code(), context->group().self, why.message()};
  perform(context, context->step([&](Passes& passes, Effects& effects) {
    const auto known = passes.progress();
    const bool begun = std::any_of(known.begin(), known.end(), [&](const Progress& each) { return each.pass == pass; });
    begun ? passes.fail(pass, abort.failure, effects) : passes.on_message(from.rank, std::move(abort), effects);
  }));
}

}  // namespace farad::autograd
