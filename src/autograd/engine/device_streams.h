#pragma once

#include <ATen/core/TensorBody.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "autograd/engine/plan.h"
#include "wire/device.h"

namespace farad::autograd {

/// From when on a tensor of a device may be used; that of the host always may. Copies mean the same moment.
class Ready {
 public:
  /// At once.
  Ready() = default;
  /// When the calling thread's current stream of the tensor's device has done what is queued in it now.
  explicit Ready(const at::Tensor& tensor);

  /// What the calling thread's current stream of that device is given from now on, runs after that moment; and the
  /// tensor's memory stays until it has run. The thread itself does not wait.
  void wait_here(const at::Tensor& tensor) const;

 private:
  std::shared_ptr<const c10::Event> event_;
};

/// In which streams a pass runs nodes: each in that in which the forward pass made its outputs, as libtorch does.
/// Costs nothing where no node is of a device.
class DeviceStreams {
 public:
  explicit DeviceStreams(const Plan& plan);

  bool none() const { return streams_.empty(); }
  /// For the life of what it returns, the calling thread's current stream is that of `node`, if that has one.
  [[nodiscard]] std::optional<c10::StreamGuard> enter(NodeIndex node) const {
    if (none() || !streams_[node]) return std::nullopt;
    return std::optional<c10::StreamGuard>(std::in_place, *streams_[node]);
  }

  /// Makes `gradient`, which the calling thread's current stream computes, one that `to` may use: runs `add`, which
  /// puts it to what has come there before, in the stream of `to`, and after what was queued here.
  template <class Add>
  void pass(const at::Tensor& gradient, NodeIndex to, const Add& add) const {
    if (none() || !gradient.device().is_cuda()) return add();
    const auto stream = streams_[to];
    if (!stream || stream->device() != gradient.device()) {
      const at::Tensor added = gradient;
      add();
      return wire::finish_here({&added, 1});
    }
    bridge(gradient, *stream);
    const c10::StreamGuard there(*stream);
    add();
  }

 private:
  static void bridge(const at::Tensor& gradient, const c10::Stream& to);

  std::vector<std::optional<c10::Stream>> streams_;  // by node; none at all if no node has one
};

}  // namespace farad::autograd
