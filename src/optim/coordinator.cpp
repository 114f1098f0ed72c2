#include "optim/coordinator.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/check.h"

namespace farad::optim {
namespace {

/// The parameters of each owner, in groups as they were given.
std::map<int, ShardPlan> plans_of(const std::vector<Coordinator::Group>& groups, uint64_t optimizer) {
  std::map<int, ShardPlan> plans;
  int64_t number = 0;
  for (size_t i = 0; i < groups.size(); i++) {
    for (const auto& parameter : groups[i].parameters) {
      auto& plan = plans[parameter.owner().rank];
      plan.groups.resize(groups.size());
      plan.groups[i].parameters.push_back(parameter);
      plan.groups[i].numbers.push_back(number++);
    }
  }
  std::vector<int> owners;
  for (const auto& [owner, plan] : plans) owners.push_back(owner);
  for (auto& [owner, plan] : plans) {
    plan.optimizer = optimizer;
    plan.owners = owners;
    for (size_t i = 0; i < groups.size(); i++) plan.groups[i].settings = groups[i].settings;
  }
  return plans;
}

/// That passes of these contexts count, before those are called who would have to ask for it.
void tell_commits(autograd::Service& gradients, const std::vector<int64_t>& contexts, const std::vector<int>& owners) {
  for (const auto id : contexts) {
    const auto context = gradients.contexts().find(autograd::ContextId(id));
    if (!context) continue;
    for (const int owner : owners) {
      gradients.backward().send_commits(*context, base::Rank(static_cast<uint16_t>(owner)));
    }
  }
}

[[noreturn]] void raise(base::Code code, const std::string& text) {
  std::rethrow_exception(base::Status(code, text).exception());
}

}  // namespace

template <auto Fn, class... A>
auto Coordinator::all(const A&... args) const {
  using Reply = decltype(parts_.front().template rpc_async<Fn>(args...));
  std::vector<Reply> replies;
  for (const auto& part : parts_) {
    replies.push_back(or_error<Reply>([&] { return part.template rpc_async<Fn>(args...); }));
  }
  return replies;
}

template <class Reply, class Take>
void Coordinator::await(const char* operation, const std::vector<Reply>& replies, const Take& take) const {
  base::Status first;
  for (size_t i = 0; i < replies.size(); i++) {
    try {
      take(replies[i]);
    } catch (const std::exception&) {
      const auto why = base::status_of(std::current_exception());
      if (first.ok()) {
        first = {why.code(), std::string("[optim] ") + operation + ": " + name_of(i) + ": " + why.message() +
                                 "; what other workers have of this context's gradients may be changed"};
      }
    }
  }
  first.raise();
}

Coordinator::Coordinator(Services services, const std::vector<Group>& groups)
    : services_(std::move(services)), optimizer_(services_.own.new_optimizer()) {
  const Turn turn(*this);
  for (const auto& group : groups) {
    rates_.push_back(group.settings.options.at("lr"));
    facts_.groups.push_back({group.settings, static_cast<int64_t>(group.parameters.size())});
  }
  base_rates_ = rates_;
  auto plans = plans_of(groups, optimizer_);
  FARAD_CHECK(!plans.empty(), "[optim] there is nothing to optimize: no parameters were given");
  for (auto& [owner, plan] : plans) {
    owners_.push_back(owner);
    auto& numbers = numbers_.emplace_back();
    for (const auto& group : plan.groups) numbers.insert(numbers.end(), group.numbers.begin(), group.numbers.end());
    parts_.push_back(services_.make(owner, std::move(plan)));
  }
  // What goes wrong in the making is thrown at the first use, which is here.
  for (const auto& ready : all<&Participant::ready>()) ready.wait();
}

std::string Coordinator::name_of(size_t part) const { return services_.worker.members()[owners_[part]].name; }

std::string Coordinator::name_of_step(uint64_t step) const {
  return "[optim] step " + std::to_string(step) + " of an optimizer of " + services_.worker.self().name;
}

bool Coordinator::step(std::vector<int64_t> contexts, double scale, bool finite) {
  const Turn turn(*this);
  tell_commits(services_.own.gradients(), contexts, owners_);
  Recipe recipe{++step_, std::move(contexts), rates_, scale, finite, false};
  if (parts_.size() == 1) return step_alone(recipe);
  if (!prepare(recipe)) return false;
  check(recipe.step, commit(recipe.step));
  return true;
}

bool Coordinator::prepare(Recipe& recipe) {
  auto answers = prepare_together(recipe);
  const auto is_busy = [](const Answer& answer) { return !answer.error && answer.vote == Vote::Busy; };
  const auto has_failed = [](const Answer& answer) { return answer.error || answer.vote == Vote::Over; };
  if (std::any_of(answers.begin(), answers.end(), is_busy) &&
      std::none_of(answers.begin(), answers.end(), has_failed)) {
    // Two that hold some and wait for the rest would wait for ever, unless all wait in the same order.
    abort(recipe.step);
    recipe.step = ++step_;
    recipe.wait = true;
    answers = prepare_in_order(recipe);
  }
  const auto bad = std::find_if(answers.begin(), answers.end(),
                                [](const Answer& answer) { return answer.error || answer.vote != Vote::Ready; });
  if (bad == answers.end()) return true;
  const auto failed = std::find_if(answers.begin(), answers.end(), has_failed);
  abort(recipe.step);
  if (failed == answers.end()) return false;
  fail(recipe.step, static_cast<size_t>(failed - answers.begin()), failed->error);
}

bool Coordinator::step_alone(const Recipe& recipe) {
  Recipe patient = recipe;
  patient.wait = true;
  Answer answer;
  try {
    answer.vote = parts_[0].rpc_sync<&Participant::step>(patient);
  } catch (const Timeout&) {
    return settle_late(recipe.step, std::current_exception());
  } catch (const std::exception&) {
    answer.error = std::current_exception();
  }
  if (!answer.error && answer.vote == Vote::NotFinite) return false;
  if (!answer.error && answer.vote == Vote::Ready) return true;
  fail(recipe.step, 0, answer.error);
}

bool Coordinator::settle_late(uint64_t step, const std::exception_ptr& timeout) {
  auto standing = Standing::Aborted;
  try {
    // It may be about to end: the owner's word counts.
    standing = answer_by(deadline(), services_.abort(owners_[0], {optimizer_, step}));
  } catch (const PeerLost&) {
    fail(step, 0, std::current_exception());
  } catch (const std::exception&) {
    const auto why = base::status_of(std::current_exception());
    raise(why.code(), name_of_step(step) + ": what became of it at " + name_of(0) + " is not known: " + why.message());
  }
  if (standing == Standing::Committed) return true;
  fail(step, 0, timeout);
}

std::vector<Coordinator::Answer> Coordinator::prepare_together(const Recipe& recipe) {
  std::vector<Answer> answers;
  for (const auto& future : all<&Participant::prepare>(recipe)) {
    auto& answer = answers.emplace_back();
    try {
      answer.vote = future.wait();
    } catch (const std::exception&) {
      answer.error = std::current_exception();
    }
  }
  return answers;
}

std::vector<Coordinator::Answer> Coordinator::prepare_in_order(const Recipe& recipe) {
  std::vector<Answer> answers;
  for (const auto& part : parts_) {
    auto& answer = answers.emplace_back();
    try {
      answer.vote = part.rpc_sync<&Participant::prepare>(recipe);
    } catch (const std::exception&) {
      answer.error = std::current_exception();
    }
    if (answer.error || answer.vote != Vote::Ready) break;
  }
  return answers;
}

std::vector<Future<Standing>> Coordinator::tell(const Word& word, uint64_t step) const {
  std::vector<Future<Standing>> answers;
  for (const int owner : owners_) {
    answers.push_back(or_error<Future<Standing>>([&] { return word(owner, {optimizer_, step}); }));
  }
  return answers;
}

Standing Coordinator::answer_by(base::TimePoint until, const Future<Standing>& answer) const {
  if (!answer.core()->wait(until)) {
    raise(base::Code::Timeout,
          "no answer in " + base::to_text(services_.timeout) + ", but it will hear how the step ends when it can");
  }
  return answer.wait();
}

void Coordinator::abort(uint64_t step) {
  const auto until = deadline();
  for (const auto& answer : tell(services_.abort, step)) {
    // One that cannot be reached settles it with the others, or is gone; one that is slow hears it later.
    answer.core()->wait(until);
  }
}

Coordinator::Ending Coordinator::commit(uint64_t step) {
  const auto until = deadline();
  const auto answers = tell(services_.commit, step);
  Ending ending;
  for (size_t i = 0; i < answers.size(); i++) {
    std::string* list = &ending.unknown;
    try {
      list = answer_by(until, answers[i]) == Standing::Committed ? &ending.applied : &ending.not_applied;
    } catch (const std::exception&) {
      const auto why = base::status_of(std::current_exception());
      if (ending.why.ok()) ending.why = why;
    }
    *list += (list->empty() ? "" : ", ") + name_of(i);
  }
  return ending;
}

void Coordinator::check(uint64_t step, const Ending& ending) const {
  const auto& [applied, not_applied, unknown, why] = ending;
  if (unknown.empty() && not_applied.empty()) return;
  std::string text = name_of_step(step) + ": ";
  if (!applied.empty()) text += "it is applied at " + applied + "; ";
  if (!not_applied.empty()) text += "it is not applied at " + not_applied + ", which took this worker for lost; ";
  if (!unknown.empty()) text += "what became of it at " + unknown + " is not known: " + why.message();
  raise(why.ok() ? base::Code::Aborted : why.code(), text);
}

void Coordinator::fail(uint64_t step, size_t part, const std::exception_ptr& error) {
  const auto why = error ? base::status_of(error)
                         : base::Status(base::Code::Aborted, "it took this worker for lost, and dropped the step");
  const std::string where = parts_.size() == 1 && why.code() == base::Code::PeerLost
                                ? "; its parameters are lost with it"
                                : "; no parameter has moved at any worker that is left";
  raise(why.code(), name_of_step(step) + ": " + name_of(part) + ": " + why.message() + where);
}

double Coordinator::clip_grad_norm(int64_t context, double max_norm) {
  FARAD_CHECK(max_norm >= 0, "[optim] clip_grad_norm: the norm can be at most ", max_norm, "?");
  const Turn turn(*this);
  tell_commits(services_.own.gradients(), {context}, owners_);
  double sum = 0;
  await("clip_grad_norm", all<&Participant::squared_norm>(context), [&](const auto& part) { sum += part.wait(); });
  const double norm = std::sqrt(sum);
  const double factor = max_norm / (norm + 1e-6);  // as torch::nn::utils::clip_grad_norm_ has it
  if (std::isfinite(norm) && factor < 1) {
    await("clip_grad_norm", all<&Participant::scale_gradients>(context, factor), [](const auto& part) { part.wait(); });
  }
  return norm;
}

void Coordinator::clip_grad_value(int64_t context, double max_value) {
  FARAD_CHECK(max_value >= 0, "[optim] clip_grad_value: a value can be at most ", max_value, "?");
  const Turn turn(*this);
  tell_commits(services_.own.gradients(), {context}, owners_);
  await("clip_grad_value", all<&Participant::clamp_gradients>(context, max_value),
        [](const auto& part) { part.wait(); });
}

}  // namespace farad::optim
