#include <farad/detail/value.h>
#include <farad/error.h>

#include <bit>
#include <msgpack.hpp>

#include "wire/bytes.h"
#include "wire/torch_compat.h"
#include "wire/value_extensions.h"

namespace farad::detail {
namespace {

struct Body {
  std::vector<char>& bytes;
  void write(const char* data, size_t size) { bytes.insert(bytes.end(), data, data + size); }
};

struct Packer : private Body, public msgpack::packer<Body> {
  explicit Packer(std::vector<char>& bytes) : Body{bytes}, msgpack::packer<Body>(static_cast<Body&>(*this)) {}
};

/// A floating point number as it is. msgpack-cxx makes an integer of 2.0, and of -0.0 a zero without its sign.
template <class Bits, class T>
void put_float(std::vector<char>& body, unsigned char format, T value) {
  const auto bits = std::bit_cast<Bits>(value);
  body.push_back(static_cast<char>(format));
  for (int shift = 8 * sizeof bits - 8; shift >= 0; shift -= 8) body.push_back(static_cast<char>(bits >> shift));
}

}  // namespace

void Writer::boolean(bool value) { value ? Packer(body_).pack_true() : Packer(body_).pack_false(); }
void Writer::integer(int64_t value) { Packer(body_).pack_int64(value); }
void Writer::natural(uint64_t value) { Packer(body_).pack_uint64(value); }
void Writer::single(float value) { put_float<uint32_t>(body_, 0xca, value); }
void Writer::real(double value) { put_float<uint64_t>(body_, 0xcb, value); }

void Writer::text(std::string_view value) {
  if (value.size() > UINT32_MAX)
    throw Error("[wire] cannot encode " + over_limit("a string", value.size(), UINT32_MAX));
  const auto size = static_cast<uint32_t>(value.size());
  Packer(body_).pack_str(size).pack_str_body(value.data(), size);
}

void Writer::bytes(const void* data, size_t size) {
  if (size > UINT32_MAX) throw Error("[wire] cannot encode " + over_limit("bytes", size, UINT32_MAX));
  const auto small = static_cast<uint32_t>(size);
  Packer(body_).pack_bin(small).pack_bin_body(static_cast<const char*>(data), small);
}

void Writer::tensor(const at::Tensor& value) {
  char index[index_bytes];
  wire::put(index, static_cast<uint32_t>(tensors_.size()));
  Packer(body_).pack_ext(sizeof index, tensor_extension).pack_ext_body(index, sizeof index);
  tensors_.push_back(value);
}

void Writer::reference(const std::shared_ptr<RefHandle>& value) {
  if (!references_) throw Error("[wire] a reference travels only as an argument or a result of a call");
  char index[index_bytes];
  wire::put(index, static_cast<uint32_t>(references_->size()));
  Packer(body_).pack_ext(sizeof index, reference_extension).pack_ext_body(index, sizeof index);
  references_->push_back(value);
}

void Writer::scalar(const c10::Scalar& value) {
  if (value.isBoolean()) return boolean(value.toBool());
  if (const auto large = wire::compat::above_int64(value)) return natural(*large);
  if (value.isIntegral(/*includeBool=*/false)) return integer(value.toLong());
  if (value.isFloatingPoint()) return real(value.toDouble());
  if (!value.isComplex()) throw Error("[wire] cannot encode a symbolic scalar: give it a value first");
  char parts[complex_bytes];
  const auto number = value.toComplexDouble();
  wire::put(wire::put(parts, number.real()), number.imag());
  Packer(body_).pack_ext(sizeof parts, complex_extension).pack_ext_body(parts, sizeof parts);
}

void Writer::begin(size_t count) {
  if (count > limits_.elements)
    throw Error("[wire] cannot encode " + over_limit("a container", count, limits_.elements));
  if (++depth_ > limits_.depth)
    throw Error("[wire] cannot encode " + over_limit("values nested to a depth", depth_, limits_.depth));
}

void Writer::begin_array(size_t count) {
  begin(count);
  Packer(body_).pack_array(static_cast<uint32_t>(count));
}

void Writer::begin_map(size_t count) {
  begin(count);
  Packer(body_).pack_map(static_cast<uint32_t>(count));
}

}  // namespace farad::detail
