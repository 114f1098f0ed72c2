#include "autograd/engine/device_streams.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace farad::autograd {
namespace {

/// The forward pass noted the stream of each output, which is an input here.
std::optional<c10::Stream> stream_of(torch::autograd::Node& node) {
  for (uint32_t input = 0; input < node.num_inputs(); input++) {
    const auto& metadata = node.input_metadata(input);
    if (!compat::is_placeholder(metadata) && metadata.device().is_cuda()) return metadata.stream();
  }
  return std::nullopt;
}

}  // namespace

Ready::Ready(const at::Tensor& tensor) {
  if (!wire::is_on_device(tensor)) return;
  auto event = std::make_shared<c10::Event>(tensor.device().type());
  event->record(wire::current_stream(tensor.device()));
  event_ = std::move(event);
}

void Ready::wait_here(const at::Tensor& tensor) const {
  if (!event_) return;
  const auto here = wire::current_stream(tensor.device());
  event_->block(here);
  wire::use_in(here, tensor);
}

DeviceStreams::DeviceStreams(const Plan& plan) {
  if (!c10::impl::hasDeviceGuardImpl(c10::kCUDA)) return;
  for (NodeIndex index = 0; index < plan.nodes.size(); index++) {
    auto stream = stream_of(*plan.nodes[index]);
    if (!stream) continue;
    streams_.resize(plan.nodes.size());
    streams_[index] = stream;
  }
}

void DeviceStreams::bridge(const at::Tensor& gradient, const c10::Stream& to) {
  const auto from = wire::current_stream(gradient.device());
  if (from != to) {
    c10::Event event(from.device_type());
    event.record(from);
    event.block(to);
  }
  // Its memory may be of a third stream: that which a message came in by.
  wire::use_in(to, gradient);
}

}  // namespace farad::autograd
