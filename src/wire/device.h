#pragma once

#include <ATen/core/TensorBody.h>
#include <c10/core/Stream.h>

#include <span>

#include "base/status.h"
#include "wire/message.h"

/// Tensors of CUDA devices. They travel through the memory of the host, so that no transport need know of devices. Only
/// libtorch's device-independent interface is used: the same code is built with and without CUDA.
///
/// What runs on a device runs in streams, in order within one stream and in no order between two; a kernel that was
/// started need not have ended. And memory of a device belongs to the stream that it was allocated in: given back, it
/// is used again as soon as that stream may, whatever other streams still do with it, unless these were recorded.
namespace farad::wire {

inline bool is_on_device(const at::Tensor& tensor) { return tensor.defined() && tensor.device().is_cuda(); }

/// Of the calling thread.
c10::Stream current_stream(c10::Device device);

/// A stream of `device` that nothing of a user's runs in: who waits for it waits for copies, and not for a user's
/// kernels. One for each device and process, because libtorch keeps the free memory of each stream apart.
c10::Stream own_stream(c10::Device device);

/// When the values of a tensor that is to be sent are complete.
enum class Complete {
  Now,               ///< already
  InCurrentStreams,  ///< once the calling thread's current streams have done what is queued
};

/// Replaces the message's tensors that lie on devices by copies on the host, and notes where they belong. Waits for the
/// streams that `when` names, and for copies. Invalid if the device fails; then the message is unchanged.
[[nodiscard]] base::Status to_host(Message& message, Complete when);

/// The reverse, for whoever takes the message in: its tensors lie where they belong, and are complete. Waits for copies
/// only, so it may be called where messages are handled. Invalid if this process does not have one of the devices; then
/// the tensors stay on the host.
///
/// Their memory belongs to own_stream(): use_here() before anything else uses them.
[[nodiscard]] base::Status to_devices(Message& message);

/// From here on the current streams of the calling thread use `tensors`: their memory is not given to others before
/// these have done what will be queued until then.
void use_here(std::span<const at::Tensor> tensors);
/// The same for one stream.
void use_in(const c10::Stream& stream, const at::Tensor& tensor);

/// Waits until the calling thread's current streams, of the devices of `tensors`, have done what is queued.
void finish_here(std::span<const at::Tensor> tensors);

}  // namespace farad::wire
