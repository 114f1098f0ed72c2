#pragma once

#include <ATen/core/TensorBody.h>

#include <vector>

#include "base/status.h"
#include "wire/message.h"

namespace farad::net {

/// The message's tensors as the receiver of a message within one process gets them, which are values as they would be
/// by any other transport: whoever else can reach a tensor has another one. On failure, for want of memory, none.
base::Status as_values(const wire::Message& message, std::vector<at::Tensor>& values);

}  // namespace farad::net
