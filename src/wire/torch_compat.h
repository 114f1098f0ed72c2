#pragma once

#include <ATen/core/TensorBody.h>
#include <c10/core/Scalar.h>
#include <torch/version.h>

#include <cstdint>
#include <optional>

#define FARAD_TORCH_SINCE(major, minor) \
  (TORCH_VERSION_MAJOR > (major) || (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

#if FARAD_TORCH_SINCE(2, 3)
#include <c10/core/impl/COW.h>
#endif

/// What differs between the versions of libtorch, as far as this layer is concerned.
namespace farad::wire::compat {

/// Reads without making a lazily shared (copy-on-write) storage copy itself.
inline const char* const_data(const at::Tensor& tensor) {
#if FARAD_TORCH_SINCE(2, 1)
  return static_cast<const char*>(tensor.const_data_ptr());
#else
  return static_cast<const char*>(tensor.data_ptr());
#endif
}

/// Where the storage's memory begins; changes when it is resized.
inline const void* const_data(const c10::Storage& storage) { return storage.data(); }

/// Whether another storage may refer to the same memory until one of them is written to.
inline bool is_copy_on_write([[maybe_unused]] const c10::Storage& storage) {
#if FARAD_TORCH_SINCE(2, 3)
  return c10::impl::cow::is_cow_data_ptr(storage.data_ptr());
#else
  return false;
#endif
}

/// The value of a scalar beyond the range of int64_t.
inline std::optional<uint64_t> above_int64([[maybe_unused]] const c10::Scalar& scalar) {
#if FARAD_TORCH_SINCE(2, 3)
  if (scalar.type() == c10::ScalarType::UInt64) return scalar.toUInt64();
#endif
  return {};
}

/// A scalar beyond that range; none where libtorch has no such scalars.
inline std::optional<c10::Scalar> scalar_above_int64([[maybe_unused]] uint64_t value) {
#if FARAD_TORCH_SINCE(2, 3)
  return c10::Scalar(value);
#else
  return {};
#endif
}

}  // namespace farad::wire::compat
