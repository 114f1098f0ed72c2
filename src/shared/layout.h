#pragma once

#include <ATen/core/TensorBody.h>
#include <farad/detail/optimizer.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace farad::shared {

/// A parameter or buffer of a module, as the module calls it.
struct Entry {
  std::string name;
  at::Tensor tensor;
  bool trained = true;  ///< a parameter that requires a gradient
  bool buffer = false;  ///< no parameter
};

/// Where everything lies in a segment, told from the module and the optimizer alone: whoever computes it from an equal
/// module and equal options computes the same.
class Layout {
 public:
  struct Place {
    std::string name;
    c10::ScalarType type = c10::ScalarType::Float;
    std::vector<int64_t> sizes;
    bool trained = true;
    bool buffer = false;
    size_t offset = 0;  ///< of its values
    size_t bytes = 0;
    size_t steps = 0;  ///< offset of how often it was stepped, plus one; 0 = the optimizer remembers nothing of it yet
    size_t slot = 0;   ///< offset in a slot of its gradient, or of a copy of it
    size_t average = 0;  ///< offset of its moving average, if one is kept of the trained ones
    /// What the optimizer remembers of it: as many tensors of the same shape, "exp_avg" first and so on.
    std::vector<std::pair<std::string, size_t>> remembered;
  };

  /// Throws, naming the entry, if one cannot be shared: not on the CPU, sparse, quantised. `moving_average`: how much
  /// of the average of the trained ones stays at each update; 0 = none is kept. `remembers`: whether what the optimizer
  /// remembers lies there too.
  Layout(const std::vector<Entry>& entries, const detail::OptimizerSettings& settings, double moving_average = 0,
         bool remembers = true);

  const std::vector<Place>& places() const { return places_; }

  /// All trained ones as one: their values lie one behind the other, what the optimizer remembers of them likewise, and
  /// so do their averages, each in as many elements. What lies in the gaps between two of them means nothing.
  struct Whole {
    int64_t elements = 0;
    Place place;                  ///< as of a parameter; without a count of steps
    std::vector<int64_t> begins;  ///< of each trained one, in elements
  };
  /// None unless all of them are of one type.
  std::optional<Whole> whole() const;

  /// All that an update may change lies in so many bytes, and can be kept and put back in one piece.
  size_t bytes() const { return bytes_; }
  /// What a worker leaves for others: something of the shape of each, behind a byte for each that says whether it is
  /// there.
  size_t slot_bytes() const { return slot_bytes_; }
  double moving_average() const { return moving_average_; }

  /// The module and the optimizer as text, a line each, and the same for everything that has to be the same.
  const std::string& description() const { return description_; }
  /// The optimizer that a description speaks of; its learning rate is not in there. Throws if it speaks of none.
  static detail::OptimizerSettings settings_in(const std::string& description);
  static double moving_average_in(const std::string& description);
  /// How another description differs from this one: the first line that does. Empty if it does not.
  std::string difference_to(const std::string& theirs) const;
  /// How another module differs: in number, names, types or shapes. Empty if its values can be exchanged with ours.
  std::string difference_to(const std::vector<Entry>& entries) const;

 private:
  std::vector<Place> places_;
  size_t bytes_ = 0, slot_bytes_ = 0;
  const double moving_average_;
  std::string description_;
};

}  // namespace farad::shared
