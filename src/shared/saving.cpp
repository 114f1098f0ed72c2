#include "shared/saving.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/scalar_tensor.h>

#include <cstring>
#include <sstream>

#include "optim/checkpoint.h"

namespace farad::shared {
namespace {

using base::Status;

constexpr char version_name[] = "version";
constexpr char average_option[] = "moving_average";

/// One tensor of a checkpoint, and where it lies among the values.
struct Piece {
  std::string name;
  size_t offset = 0;
  const Layout::Place* place = nullptr;
};

/// All that have the shape of their parameter; moments are zeros before its first step.
std::vector<Piece> pieces_of(const Layout& layout) {
  std::vector<Piece> pieces;
  for (const auto& place : layout.places()) {
    pieces.push_back({"value." + place.name, place.offset, &place});
    for (const auto& [name, offset] : place.remembered) {
      pieces.push_back({"state." + place.name + "." + name, offset, &place});
    }
    if (place.trained && layout.moving_average() > 0)
      pieces.push_back({"average." + place.name, place.average, &place});
  }
  return pieces;
}

std::string steps_name(const Layout::Place& place) { return "steps." + place.name; }

/// As the segment has it: plus one, so that 0 is none.
int64_t& steps_in(Image& image, const Layout::Place& place) {
  return *reinterpret_cast<int64_t*>(image.values.data() + place.steps);
}

optim::CheckpointFacts facts_of(const Layout& layout, detail::OptimizerSettings settings, double rate) {
  settings.options["lr"] = rate;
  if (layout.moving_average() > 0) settings.options[average_option] = layout.moving_average();
  int64_t trained = 0;
  for (const auto& place : layout.places()) trained += place.trained;
  return {{{settings, trained}}};
}

Status refused(const std::string& directory, const std::string& why) {
  return {base::Code::Invalid, "[shared] checkpoint " + directory + ": " + why + "; nothing was changed"};
}

/// How the optimizer of a checkpoint differs from ours. Empty if it does not.
std::string difference(const optim::CheckpointFacts& here, const optim::CheckpointFacts& there) {
  if (there.groups.size() != 1) return "it has " + std::to_string(there.groups.size()) + " parameter groups, not one";
  const auto& [ours, count] = here.groups.front();
  const auto& [theirs, their_count] = there.groups.front();
  if (ours.kind != theirs.kind) return "it was trained by " + theirs.kind + ", this model is by " + ours.kind;
  if (count != their_count) {
    return "it has " + std::to_string(their_count) + " parameters that are trained, this model " +
           std::to_string(count);
  }
  auto all = ours.options;
  all.insert(theirs.options.begin(), theirs.options.end());
  for (const auto& [name, value] : all) {
    const auto our = ours.options.find(name), their = theirs.options.find(name);
    const bool both = our != ours.options.end() && their != theirs.options.end();
    if (!both || (name != "lr" && our->second != their->second)) {
      std::ostringstream text;
      text << "it was trained with " << name << ' ';
      their == theirs.options.end() ? text << "unset" : text << their->second;
      text << ", this model has ";
      our == ours.options.end() ? text << "none" : text << our->second;
      return text.str();
    }
  }
  return {};
}

/// Takes a tensor out of those of a checkpoint into the image.
Status take(optim::NamedTensors& tensors, const Piece& piece, const std::string& directory, Image& image) {
  const auto found = tensors.extract(piece.name);
  if (found.empty()) return refused(directory, "it has no \"" + piece.name + "\"");
  const auto& tensor = found.mapped();
  const auto& place = *piece.place;
  if (tensor.scalar_type() != place.type || tensor.sizes() != place.sizes) {
    std::ostringstream text;
    text << "\"" << piece.name << "\" is of " << c10::toString(tensor.scalar_type()) << " " << tensor.sizes()
         << ", in this model of " << c10::toString(place.type) << " " << c10::IntArrayRef(place.sizes);
    return refused(directory, text.str());
  }
  std::memcpy(image.values.data() + piece.offset, tensor.contiguous().data_ptr(), place.bytes);
  return {};
}

Status take(optim::NamedTensors& tensors, const std::string& name, const std::string& directory, int64_t& number) {
  const auto found = tensors.extract(name);
  if (found.empty()) return refused(directory, "it has no \"" + name + "\"");
  if (found.mapped().scalar_type() != at::kLong || found.mapped().numel() != 1) {
    return refused(directory, "\"" + name + "\" is no number");
  }
  number = found.mapped().item<int64_t>();
  if (number < 0) return refused(directory, "\"" + name + "\" is less than 0");
  return {};
}

}  // namespace

Status save_image(const std::string& directory, const Layout& layout, const detail::OptimizerSettings& settings,
                  Image& image) {
  optim::NamedTensors tensors;
  for (const auto& [name, offset, place] : pieces_of(layout)) {
    tensors.emplace(name, at::from_blob(image.values.data() + offset, place->sizes, at::TensorOptions(place->type)));
  }
  for (const auto& place : layout.places()) {
    if (place.trained) tensors.emplace(steps_name(place), at::scalar_tensor(steps_in(image, place), at::kLong));
  }
  tensors.emplace(version_name, at::scalar_tensor(static_cast<int64_t>(image.version), at::kLong));
  const auto facts = facts_of(layout, settings, image.rate);
  optim::CheckpointWriter writer(directory);
  if (auto status = writer.begin(facts); !status.ok()) return status;
  if (auto status = writer.add(tensors); !status.ok()) return status;
  return writer.finish(facts);
}

Status load_image(const std::string& directory, const Layout& layout, const detail::OptimizerSettings& settings,
                  Image& image) {
  optim::CheckpointFacts facts;
  optim::NamedTensors tensors;
  if (auto status = optim::read_checkpoint(directory, facts, tensors); !status.ok()) return status;
  const auto differs = difference(facts_of(layout, settings, 0), facts);
  if (!differs.empty()) return refused(directory, differs);
  image.values.assign(layout.bytes(), 0);
  for (const auto& piece : pieces_of(layout)) {
    if (auto status = take(tensors, piece, directory, image); !status.ok()) return status;
  }
  for (const auto& place : layout.places()) {
    if (!place.trained) continue;
    if (auto status = take(tensors, steps_name(place), directory, steps_in(image, place)); !status.ok()) return status;
  }
  int64_t version = 0;
  if (auto status = take(tensors, version_name, directory, version); !status.ok()) return status;
  if (!tensors.empty()) return refused(directory, "this model has no \"" + tensors.begin()->first + "\"");
  image.version = static_cast<uint64_t>(version);
  image.rate = facts.groups.front().settings.options.at("lr");
  return {};
}

}  // namespace farad::shared
