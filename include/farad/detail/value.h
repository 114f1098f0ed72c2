#pragma once

#include <ATen/core/TensorBody.h>
#include <c10/core/Scalar.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

/// Values as bytes (MessagePack), tensors beside them. The types that travel are in codec.h; here is what they are
/// written and read with.
namespace farad::detail {

/// What is taken in from somebody else, and so what is sent: FARAD_LIMIT_DEPTH and FARAD_LIMIT_ELEMENTS.
struct ValueLimits {
  uint32_t depth = 64;           ///< nesting of values
  uint32_t elements = 1u << 24;  ///< of one container
};

/// One worker's share of a value that lives on one worker; see rref.h.
class RefHandle;
using References = std::vector<std::shared_ptr<RefHandle>>;

/// Appends values to a body and their tensors and references to lists. Throws farad::Error on what nobody would take
/// in: containers that are too long or nested too deeply, scalars that have no value yet.
class Writer {
 public:
  Writer(std::vector<char>& body, std::vector<at::Tensor>& tensors, ValueLimits limits = {})
      : body_(body), tensors_(tensors), limits_(limits) {}
  Writer(std::vector<char>& body, std::vector<at::Tensor>& tensors, References& references, ValueLimits limits)
      : body_(body), tensors_(tensors), references_(&references), limits_(limits) {}

  void boolean(bool value);
  void integer(int64_t value);
  void natural(uint64_t value);
  void single(float value);
  void real(double value);
  void text(std::string_view value);
  void bytes(const void* data, size_t size);
  void tensor(const at::Tensor& value);
  void scalar(const c10::Scalar& value);
  /// Throws where references do not travel: outside of calls.
  void reference(const std::shared_ptr<RefHandle>& value);
  /// `count` values follow, then end().
  void begin_array(size_t count);
  /// `count` pairs of key and value follow, then end().
  void begin_map(size_t count);
  void end() { --depth_; }

 private:
  void begin(size_t count);

  std::vector<char>& body_;
  std::vector<at::Tensor>& tensors_;
  References* references_ = nullptr;
  const ValueLimits limits_;
  uint32_t depth_ = 0;
};

/// Takes values off the front of a body, which may be anything. Each function gives true and the value, or false; then
/// error() says what was expected and what came, and the Reader is of no further use.
class Reader {
 public:
  /// Refers to both, copies neither.
  Reader(std::span<const char> body, std::span<const at::Tensor> tensors, ValueLimits limits = {})
      : next_(body.data()), end_(body.data() + body.size()), tensors_(tensors), limits_(limits) {}

  /// The references that came along; must outlive the Reader.
  void use(const References& references) { references_ = &references; }

  [[nodiscard]] bool boolean(bool& value);
  [[nodiscard]] bool integer(int64_t& value, int64_t least, int64_t most);
  [[nodiscard]] bool natural(uint64_t& value, uint64_t most);
  /// Integers and wider floating point numbers are taken if they lose nothing.
  [[nodiscard]] bool single(float& value);
  [[nodiscard]] bool real(double& value);
  [[nodiscard]] bool text(std::string& value);
  /// Refers to the body.
  [[nodiscard]] bool bytes(std::string_view& value);
  [[nodiscard]] bool tensor(at::Tensor& value);
  [[nodiscard]] bool scalar(c10::Scalar& value);
  [[nodiscard]] bool reference(std::shared_ptr<RefHandle>& value);
  /// `count` values follow, then end(). There are at least as many bytes left.
  [[nodiscard]] bool begin_array(size_t& count);
  /// The same, of exactly `count`; `what` is for the error.
  [[nodiscard]] bool begin_array_of(size_t count, std::string_view what);
  [[nodiscard]] bool begin_map(size_t& count);
  void end() { --depth_; }

  /// Whether all of the body was read.
  [[nodiscard]] bool finish();

  /// Refuses what was read for a reason of the caller's; always false.
  bool fail(std::string why);
  /// After a failure: where it was, from the inside out ("element 3", "field reward"); always false.
  bool fail_in(std::string_view where);

  size_t bytes_left() const { return static_cast<size_t>(end_ - next_); }
  const std::string& error() const { return error_; }

 private:
  struct Token;
  struct TokenReader;

  bool take(Token& token);
  bool expected(std::string_view what, const Token& got);
  bool begin(size_t count, size_t bytes_each);

  const char* next_;
  const char* const end_;
  const std::span<const at::Tensor> tensors_;
  const References* references_ = nullptr;
  const ValueLimits limits_;
  uint32_t depth_ = 0;
  std::string error_;
};

}  // namespace farad::detail
