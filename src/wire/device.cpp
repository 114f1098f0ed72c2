#include "wire/device.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <exception>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "wire/tensor_spec.h"

namespace farad::wire {
namespace {

/// How many of that kind this process can use; 0 too if libtorch was built without them.
int count_of(c10::DeviceType type) {
  return c10::impl::hasDeviceGuardImpl(type) ? c10::impl::VirtualGuardImpl(type).deviceCount() : 0;
}

/// The same values on `device`; no history, requires_grad kept. Complete when it returns.
at::Tensor copy_on(c10::Device device, const at::Tensor& tensor) {
  const at::NoGradGuard no_history;
  auto copy = tensor.detach().to(tensor.options().device(device));
  copy.set_requires_grad(tensor.requires_grad());
  return copy;
}

/// The same on the host: in memory that is locked there, which a device writes into many times faster than into other
/// memory, and which libtorch keeps for the next copy.
at::Tensor copy_on_host(const at::Tensor& tensor) {
  if (tensor.layout() != c10::kStrided) return copy_on(c10::kCPU, tensor);
  const at::NoGradGuard no_history;
  const auto block = as_dense_block(tensor);
  auto copy = at::empty_strided(block.sizes(), block.strides(), block.options().device(c10::kCPU).pinned_memory(true));
  copy.copy_(block);
  copy.set_requires_grad(tensor.requires_grad());
  return copy;
}

std::string tensor_of(const Message& message, size_t index) {
  return "[wire] tensor " + std::to_string(index) + " of message kind " + std::to_string(message.kind);
}

base::Status failed_to(const char* what, const Message& message) {
  return {base::Code::Invalid, "[wire] message kind " + std::to_string(message.kind) + " cannot be " + what +
                                   " a device: " + base::status_of(std::current_exception()).message()};
}

}  // namespace

c10::Stream own_stream(c10::Device device) {
  // Of the process, as the device's default stream is: workers that share a process share its devices too.
  static base::Mutex mutex;
  static std::map<c10::DeviceIndex, c10::Stream> streams;
  {
    const base::Lock lock(mutex);
    if (const auto known = streams.find(device.index()); known != streams.end()) return known->second;
  }
  // Streams of a pool go round, and users take theirs from the other one.
  const auto stream = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, /*high=*/true);
  const base::Lock lock(mutex);  // If somebody was faster, theirs it is.
  return streams.emplace(device.index(), stream).first->second;
}

base::Status to_host(Message& message, Complete when) try {
  if (std::none_of(message.tensors.begin(), message.tensors.end(), is_on_device)) return {};
  auto tensors = message.tensors;
  std::vector<c10::Device> devices(tensors.size(), c10::kCPU);
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!is_on_device(tensors[i])) continue;
    devices[i] = tensors[i].device();
    std::optional<c10::StreamGuard> aside;
    if (when == Complete::Now) aside.emplace(own_stream(devices[i]));
    tensors[i] = copy_on_host(tensors[i]);
  }
  message.tensors = std::move(tensors);
  message.devices = std::move(devices);
  return {};
} catch (...) {  // The device, perhaps because of a kernel that failed long before.
  return failed_to("copied from", message);
}

base::Status to_devices(Message& message) try {
  if (message.devices.empty()) return {};
  for (size_t i = 0; i < message.devices.size(); ++i) {
    const auto device = message.devices[i];
    if (device.is_cpu() || device.index() < count_of(device.type())) continue;
    const int count = count_of(device.type());
    return {base::Code::Invalid, tensor_of(message, i) + " is of " + device.str() + ", and this worker has " +
                                     (count == 0 ? "no CUDA device" : std::to_string(count) + " CUDA devices") +
                                     ": send it from a device that both have, or send its cpu()"};
  }
  // Whoever takes the message in may be waiting under InferenceMode; the message need not be for them.
  std::optional<c10::InferenceMode> plain;
  if (c10::InferenceMode::is_enabled()) plain.emplace(false);
  auto tensors = message.tensors;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (message.devices[i].is_cpu()) continue;
    const c10::StreamGuard aside(own_stream(message.devices[i]));
    tensors[i] = copy_on(message.devices[i], tensors[i]);
  }
  message.tensors = std::move(tensors);
  message.devices.clear();
  return {};
} catch (...) {
  return failed_to("copied to", message);
}

void use_in(const c10::Stream& stream, const at::Tensor& tensor) {
  if (tensor.is_sparse()) {
    use_in(stream, tensor._indices());
    use_in(stream, tensor._values());
  } else if (tensor.has_storage() && tensor.storage().data_ptr().get() != nullptr) {
    c10::impl::VirtualGuardImpl(stream.device_type()).recordDataPtrOnStream(tensor.storage().data_ptr(), stream);
  }
}

c10::Stream current_stream(c10::Device device) { return c10::impl::VirtualGuardImpl(device.type()).getStream(device); }

void use_here(std::span<const at::Tensor> tensors) {
  for (const auto& tensor : tensors) {
    if (is_on_device(tensor)) use_in(current_stream(tensor.device()), tensor);
  }
}

void finish_here(std::span<const at::Tensor> tensors) {
  for (const auto& tensor : tensors) {
    if (is_on_device(tensor)) current_stream(tensor.device()).synchronize();
  }
}

}  // namespace farad::wire
