#include "shared/layout.h"

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/version.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "base/check.h"
#include "optim/kinds.h"

namespace farad::shared {
namespace {

constexpr char optimizer_line[] = "optimizer ";
constexpr char average_line[] = "moving average ";
constexpr size_t alignment = 64;  // A cache line, which is what libtorch's own memory is aligned to.

/// What the optimizer remembers of a parameter of that type, found out by letting it step one.
std::vector<std::string> remembered_by(const detail::OptimizerSettings& settings, c10::ScalarType type) {
  const c10::NoGradGuard no_grad;
  auto probe = at::zeros({1}, at::TensorOptions(type));
  const auto optimizer = optim::make_optimizer(settings, {probe});
  probe.mutable_grad() = at::zeros({1}, at::TensorOptions(type));
  optimizer->step(0);
  std::vector<std::string> names;
  if (const auto state = optimizer->state(probe)) {
    for (const auto& [name, tensor] : state->tensors) names.push_back(name);
  }
  return names;
}

template <class Tensor>  // an Entry or a Place
std::string describe(const Tensor& one, c10::ScalarType type, c10::IntArrayRef sizes) {
  std::ostringstream text;
  text << (one.buffer    ? "buffer \""
           : one.trained ? "parameter \""
                         : "frozen parameter \"")
       << one.name << "\" " << c10::toString(type) << " [" << c10::Join(", ", sizes) << "]";
  return text.str();
}

std::string describe(double moving_average) {
  std::ostringstream text;
  text.precision(17);
  text << average_line << moving_average << '\n';
  return text.str();
}

std::string describe(const detail::OptimizerSettings& settings) {
  std::ostringstream text;
  text.precision(17);
  text << optimizer_line << settings.kind;
  for (const auto& [name, value] : settings.options) {
    if (name != "lr") text << ' ' << name << '=' << value;  // That one may change while they train.
  }
  return text.str();
}

/// Where so many bytes go, behind those that are there.
size_t place(size_t bytes, size_t& end) {
  const size_t offset = end;
  end += (bytes + alignment - 1) / alignment * alignment;
  return offset;
}

std::string line_of(const std::string& text, size_t& at) {
  const size_t end = std::min(text.find('\n', at), text.size());
  auto line = text.substr(at, end - at);
  at = end + 1;
  return line;
}

}  // namespace

Layout::Layout(const std::vector<Entry>& entries, const detail::OptimizerSettings& settings, double moving_average,
               bool remembers)
    : moving_average_(moving_average) {
  FARAD_CHECK(moving_average >= 0 && moving_average < 1, "[shared] a moving average of which ", moving_average,
              " stays at each update: it has to be at least 0 (none) and less than 1");
  FARAD_CHECK(!entries.empty(), "[shared] a module without parameters and buffers has nothing to share");
  place(entries.size(), slot_bytes_);
  for (const auto& [name, tensor, trained, buffer] : entries) {
    FARAD_CHECK(
        tensor.defined() && tensor.device().is_cpu() && tensor.layout() == c10::kStrided && !tensor.is_quantized(),
        "[shared] \"", name, "\" cannot be shared: only dense tensors on the CPU can");
    places_.push_back({name,
                       tensor.scalar_type(),
                       tensor.sizes().vec(),
                       trained,
                       buffer,
                       0,
                       tensor.nbytes(),
                       0,
                       place(tensor.nbytes(), slot_bytes_),
                       0,
                       {}});
  }
  const auto each_trained = [&](auto visit) {
    for (auto& one : places_) {
      if (one.trained) visit(one);
    }
  };
  // Those of a kind one behind the other, so that an update can treat them as one.
  each_trained([&](Place& one) { one.offset = place(one.bytes, bytes_); });
  for (auto& one : places_) {
    if (!one.trained) one.offset = place(one.bytes, bytes_);
    one.steps = place(sizeof(int64_t), bytes_);
  }
  std::set<c10::ScalarType> types;
  if (remembers) each_trained([&](const Place& one) { types.insert(one.type); });
  for (const auto type : types) {
    for (const auto& name : remembered_by(settings, type)) {
      each_trained([&](Place& one) {
        if (one.type == type) one.remembered.emplace_back(name, place(one.bytes, bytes_));
      });
    }
  }
  if (moving_average > 0) each_trained([&](Place& one) { one.average = place(one.bytes, bytes_); });
  description_ = "libtorch " TORCH_VERSION "\n" + describe(settings) + "\n";
  if (moving_average > 0) description_ += describe(moving_average);
  for (const auto& one : places_) description_ += describe(one, one.type, one.sizes) + "\n";
}

std::optional<Layout::Whole> Layout::whole() const {
  std::optional<Whole> all;
  size_t end = 0, size = 0;
  for (const auto& one : places_) {
    if (!one.trained) continue;
    if (!all) {
      all = Whole{0, one, {}};
      size = c10::elementSize(one.type);
    }
    if (one.type != all->place.type) return {};
    all->begins.push_back(static_cast<int64_t>((one.offset - all->place.offset) / size));
    end = one.offset + one.bytes;
  }
  if (!all) return {};
  all->place.bytes = end - all->place.offset;
  all->elements = static_cast<int64_t>(all->place.bytes / size);
  all->place.sizes = {all->elements};
  return all;
}

detail::OptimizerSettings Layout::settings_in(const std::string& description) {
  size_t at = description.find(optimizer_line);
  FARAD_CHECK(at != std::string::npos, "[shared] a model that does not say by what it is optimized");
  std::istringstream words(line_of(description, at));
  detail::OptimizerSettings settings;
  std::string word;
  words >> word >> settings.kind;
  while (words >> word) {
    const size_t equals = word.find('=');
    FARAD_CHECK(equals != std::string::npos, "[shared] a model whose optimizer has an option \"", word, "\"");
    settings.options.emplace(word.substr(0, equals), std::stod(word.substr(equals + 1)));
  }
  return settings;
}

double Layout::moving_average_in(const std::string& description) {
  size_t at = description.find(average_line);
  return at == std::string::npos ? 0 : std::stod(line_of(description, at).substr(sizeof average_line - 1));
}

std::string Layout::difference_to(const std::string& theirs) const {
  for (size_t here = 0, there = 0; here < description_.size() || there < theirs.size();) {
    const auto ours = here < description_.size() ? line_of(description_, here) : "nothing more";
    const auto other = there < theirs.size() ? line_of(theirs, there) : "nothing more";
    if (ours != other) return "here it has " + ours + ", there " + other;
  }
  return {};
}

std::string Layout::difference_to(const std::vector<Entry>& entries) const {
  for (size_t i = 0; i < std::max(entries.size(), places_.size()); ++i) {
    const auto* ours = i < places_.size() ? &places_[i] : nullptr;
    const auto* theirs = i < entries.size() ? &entries[i] : nullptr;
    if (ours && theirs && ours->name == theirs->name && ours->type == theirs->tensor.scalar_type() &&
        theirs->tensor.sizes() == ours->sizes) {
      continue;  // Whether it is trained there does not matter: one may only want to look at it.
    }
    const std::string nothing = "nothing more";
    return "it has " + (theirs ? describe(*theirs, theirs->tensor.scalar_type(), theirs->tensor.sizes()) : nothing) +
           ", the model " + (ours ? describe(*ours, ours->type, ours->sizes) : nothing);
  }
  return {};
}

}  // namespace farad::shared
