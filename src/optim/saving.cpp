// What a Coordinator has to do with checkpoints.

#include <ATen/ops/_validate_sparse_coo_tensor_args.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/sparse_coo_tensor.h>

#include <string_view>
#include <utility>

#include "optim/coordinator.h"

namespace farad::optim {
namespace {

// Names in the files: "parameter.3", "state.3.exp_avg", and "state.3.steps" if anything is remembered. What is sparse,
// which the format does not have, is there in two: "state.3.momentum_buffer.indices" and "....values".
std::string value_name(int64_t number) { return "parameter." + std::to_string(number); }
std::string state_prefix(int64_t number) { return "state." + std::to_string(number) + "."; }
constexpr const char* indices_suffix = ".indices";
constexpr const char* values_suffix = ".values";

void add_state(NamedTensors& tensors, const std::string& name, const at::Tensor& tensor) {
  if (!tensor.is_sparse()) {
    tensors.emplace(name, tensor);
    return;
  }
  const auto one = tensor.coalesce();
  tensors.emplace(name + indices_suffix, one.indices());
  tensors.emplace(name + values_suffix, one.values());
}

NamedTensors named(const std::vector<ParameterImage>& images) {
  NamedTensors tensors;
  for (const auto& image : images) {
    tensors.emplace(value_name(image.number), image.value);
    if (!image.remembered) continue;
    tensors.emplace(state_prefix(image.number) + "steps", at::scalar_tensor(image.steps, at::kLong));
    for (const auto& [name, tensor] : image.state) add_state(tensors, state_prefix(image.number) + name, tensor);
  }
  return tensors;
}

[[noreturn]] void refuse(const std::string& directory, const std::string& what) {
  throw Error("[optim] checkpoint " + directory + ": " + what + "; nothing was changed");
}

/// Makes one again of what add_state() has taken apart.
void join_sparse(ParameterImage& image, const std::string& directory) {
  constexpr std::string_view suffix = indices_suffix;
  std::vector<std::string> names;
  for (const auto& [name, tensor] : image.state) {
    if (name.ends_with(suffix)) names.push_back(name.substr(0, name.size() - suffix.size()));
  }
  for (const auto& name : names) {
    const auto indices = image.state.extract(name + indices_suffix).mapped();
    const auto values = image.state.extract(name + values_suffix);
    const auto what = "\"" + state_prefix(image.number) + name + "\"";
    if (values.empty()) refuse(directory, what + " has indices but no values");
    try {
      at::_validate_sparse_coo_tensor_args(indices, values.mapped(), image.value.sizes());
      image.state.emplace(name, at::sparse_coo_tensor(indices, values.mapped(), image.value.sizes()).coalesce());
    } catch (const c10::Error& error) {
      refuse(directory, what + " is no sparse tensor: " + error.what_without_backtrace());
    }
  }
}

/// What the tensors say of one parameter; takes it out of them.
ParameterImage take_image(NamedTensors& tensors, int64_t number, const std::string& directory) {
  ParameterImage image;
  image.number = number;
  auto value = tensors.extract(value_name(number));
  if (value.empty()) refuse(directory, "it has no parameter " + std::to_string(number));
  image.value = value.mapped();
  const auto prefix = state_prefix(number);
  for (auto next = tensors.lower_bound(prefix); next != tensors.end() && next->first.starts_with(prefix);) {
    const auto name = next->first.substr(prefix.size());
    image.remembered = true;
    if (name == "steps") {
      if (next->second.scalar_type() != at::kLong || next->second.numel() != 1) {
        refuse(directory, "\"" + next->first + "\" is no number");
      }
      image.steps = next->second.item<int64_t>();
    } else {
      image.state.emplace(name, next->second);
    }
    next = tensors.erase(next);
  }
  join_sparse(image, directory);
  return image;
}

void check_facts(const CheckpointFacts& here, const CheckpointFacts& there, const std::string& directory) {
  if (here.groups.size() != there.groups.size()) {
    refuse(directory, "it has " + std::to_string(there.groups.size()) + " parameter groups, this optimizer " +
                          std::to_string(here.groups.size()));
  }
  for (size_t i = 0; i < here.groups.size(); i++) {
    const auto group = "group " + std::to_string(i);
    const auto& [ours, count] = here.groups[i];
    const auto& [theirs, other_count] = there.groups[i];
    if (ours.kind != theirs.kind) refuse(directory, group + " is of " + theirs.kind + ", here of " + ours.kind);
    if (count != other_count) {
      refuse(directory, group + " has " + std::to_string(other_count) + " parameters, here " + std::to_string(count));
    }
    if (!theirs.options.contains("lr")) refuse(directory, group + " has no learning rate");
    for (const auto& [name, value] : ours.options) {
      const auto found = theirs.options.find(name);
      if (name == "lr" || (found != theirs.options.end() && found->second == value)) continue;
      refuse(directory, group + " was saved with another \"" + name + "\": make the optimizer with the same options");
    }
  }
}

}  // namespace

void Coordinator::save(const std::string& directory) {
  const Turn turn(*this);
  try {
    write(directory);
  } catch (const std::exception&) {
    const auto why = base::status_of(std::current_exception());
    base::Status(why.code(), "[optim] checkpoint " + directory + " was not saved: " + why.message()).raise();
  }
}

void Coordinator::write(const std::string& directory) {
  CheckpointWriter writer(directory);
  writer.begin(facts_).raise();
  // A step that does nothing: while it is open, no other optimizer changes the parameters.
  Recipe hold;
  hold.step = ++step_;
  hold.rates = rates_;
  FARAD_CHECK(prepare(hold), "[optim] the parameters could not be held meanwhile");
  try {
    for (size_t i = 0; i < parts_.size(); i++) {
      try {
        writer.add(named(parts_[i].rpc_sync<&Participant::images>())).raise();
      } catch (const PeerLost&) {
        fail(hold.step, i, std::current_exception());
      }
    }
  } catch (...) {
    abort(hold.step);
    throw;
  }
  abort(hold.step);
  auto facts = facts_;
  for (size_t i = 0; i < rates_.size(); i++) facts.groups[i].settings.options["lr"] = rates_[i];
  writer.finish(facts).raise();
}

void Coordinator::load(const std::string& directory) {
  const Turn turn(*this);
  CheckpointFacts facts;
  NamedTensors tensors;
  read_checkpoint(directory, facts, tensors).raise();
  check_facts(facts_, facts, directory);
  std::vector<std::vector<ParameterImage>> images;
  for (const auto& numbers : numbers_) {
    auto& some = images.emplace_back();
    for (const auto number : numbers) some.push_back(take_image(tensors, number, directory));
  }
  if (!tensors.empty()) refuse(directory, "what is \"" + tensors.begin()->first + "\"?");
  const auto step = ++step_;
  for (size_t i = 0; i < parts_.size(); i++) {  // In the order of ranks, because it waits for other optimizers.
    std::exception_ptr error;
    auto vote = Vote::Over;
    try {
      vote = parts_[i].rpc_sync<&Participant::prepare_images>(step, images[i]);
    } catch (const std::exception&) {
      error = std::current_exception();
    }
    if (vote == Vote::Ready) continue;
    abort(step);
    fail(step, i, error);
  }
  const auto ending = commit(step);
  // Parameters that are left go on with the rates that they were saved with, whoever else is lost.
  for (size_t i = 0; ending.may_be_applied() && i < rates_.size(); i++) {
    rates_[i] = facts.groups[i].settings.options.at("lr");
  }
  check(step, ending);
}

}  // namespace farad::optim
