#include <farad/detail/value.h>
#include <torch/version.h>

#include <cmath>
#include <msgpack.hpp>
#include <utility>

#include "wire/bytes.h"
#include "wire/torch_compat.h"
#include "wire/value_extensions.h"

namespace farad::detail {

/// One value, or the beginning of a container.
struct Reader::Token {
  enum class Kind { Nil, Boolean, Natural, Negative, Single, Real, Text, Bytes, Extension, Array, Map };
  Kind kind = Kind::Nil;
  uint64_t natural = 0;  // also the truth of a boolean and the count of a container
  int64_t negative = 0;
  double real = 0;        // also of a Single, which it holds exactly
  std::string_view text;  // also bytes and the content of an extension
  int8_t extension = 0;

  bool is(int8_t type, size_t size) const {
    return kind == Kind::Extension && extension == type && text.size() == size;
  }

  std::string name() const {
    switch (kind) {
      case Kind::Nil:
        return "nil";
      case Kind::Boolean:
        return natural ? "true" : "false";
      case Kind::Natural:
        return "the integer " + std::to_string(natural);
      case Kind::Negative:
        return "the integer " + std::to_string(negative);
      case Kind::Single:
        return "the float " + std::to_string(real);
      case Kind::Real:
        return "the double " + std::to_string(real);
      case Kind::Text:
        return "a string of " + std::to_string(text.size()) + " bytes";
      case Kind::Bytes:
        return std::to_string(text.size()) + " raw bytes";
      case Kind::Extension:
        break;
      case Kind::Array:
        return "an array of " + std::to_string(natural);
      case Kind::Map:
        return "a map of " + std::to_string(natural);
    }
    if (is(tensor_extension, index_bytes)) return "a tensor";
    if (is(complex_extension, complex_bytes)) return "a complex number";
    if (is(reference_extension, index_bytes)) return "a reference";
    return "an extension of type " + std::to_string(extension) + " and " + std::to_string(text.size()) + " bytes";
  }
};

/// Takes one token from msgpack's parser, which would by itself go on to the end of a container.
struct Reader::TokenReader : msgpack::null_visitor {
  using Kind = Token::Kind;
  Token token;
  bool found = false;
  bool cut_off = false;

  bool set(Kind kind) {
    token.kind = kind;
    return found = true;
  }
  bool visit_nil() { return set(Kind::Nil); }
  bool visit_boolean(bool value) {
    token.natural = value;
    return set(Kind::Boolean);
  }
  bool visit_positive_integer(uint64_t value) {
    token.natural = value;
    return set(Kind::Natural);
  }
  bool visit_negative_integer(int64_t value) {  // Only the format is signed; the value may well be positive.
    if (value >= 0) return visit_positive_integer(static_cast<uint64_t>(value));
    token.negative = value;
    return set(Kind::Negative);
  }
  bool visit_float32(float value) {
    token.real = value;
    return set(Kind::Single);
  }
  bool visit_float64(double value) {
    token.real = value;
    return set(Kind::Real);
  }
  bool visit_str(const char* data, uint32_t size) {
    token.text = {data, size};
    return set(Kind::Text);
  }
  bool visit_bin(const char* data, uint32_t size) {
    token.text = {data, size};
    return set(Kind::Bytes);
  }
  bool visit_ext(const char* data, uint32_t size) {  // The first byte is the type.
    token.extension = static_cast<int8_t>(data[0]);
    token.text = {data + 1, size - 1};
    return set(Kind::Extension);
  }
  bool start_array(uint32_t count) {
    token.natural = count;
    return !set(Kind::Array);  // Stop here.
  }
  bool start_map(uint32_t count) {
    token.natural = count;
    return !set(Kind::Map);
  }
  void insufficient_bytes(size_t, size_t) { cut_off = true; }

  /// The bytes of a value of the kinds that small messages are made of, which need no parser: msgpack's takes memory
  /// each time. 0 if it is none of these, or not all there.
  static size_t read_short(const char* next, size_t left, Token& token) {
    constexpr unsigned char fixarray = 0x90, fixarray_mask = 0xf0, fixext4 = 0xd6;
    if (left == 0) return 0;
    const auto first = static_cast<unsigned char>(*next);
    if (first < 0x80) {
      token.kind = Kind::Natural;
      token.natural = first;
      return 1;
    }
    if ((first & fixarray_mask) == fixarray) {
      token.kind = Kind::Array;
      token.natural = first & static_cast<unsigned char>(~fixarray_mask);
      return 1;
    }
    if (first != fixext4 || left < 6) return 0;
    token.kind = Kind::Extension;
    token.extension = static_cast<int8_t>(next[1]);
    token.text = {next + 2, 4};
    return 6;
  }
};

bool Reader::take(Token& token) {
  if (const size_t used = TokenReader::read_short(next_, bytes_left(), token)) {
    next_ += used;
    return true;
  }
  TokenReader tokens;
  size_t used = 0;
  msgpack::parse(next_, bytes_left(), used, tokens);
  if (!tokens.found || tokens.cut_off) {
    return fail(bytes_left() == 0 || tokens.cut_off ? "the values are cut off" : "not MessagePack");
  }
  token = tokens.token;
  if (token.kind == Token::Kind::Array || token.kind == Token::Kind::Map) {
    // msgpack does not say how far it came when it is stopped, but the first byte does.
    const auto first = static_cast<unsigned char>(*next_);
    used = first < 0xa0 ? 1 : (first == 0xdc || first == 0xde) ? 3 : 5;
  }
  next_ += used;
  return true;
}

bool Reader::fail(std::string why) {
  if (error_.empty()) error_ = std::move(why);
  return false;
}

bool Reader::fail_in(std::string_view where) {
  error_ = std::string(where) + ": " + error_;
  return false;
}

bool Reader::expected(std::string_view what, const Token& got) {
  return fail("expected " + std::string(what) + ", got " + got.name());
}

bool Reader::finish() {
  return bytes_left() == 0 || fail(std::to_string(bytes_left()) + " bytes are left over after the last value");
}

bool Reader::boolean(bool& value) {
  Token token;
  if (!take(token)) return false;
  value = token.natural != 0;
  return token.kind == Token::Kind::Boolean || expected("a bool", token);
}

bool Reader::integer(int64_t& value, int64_t least, int64_t most) {
  Token token;
  if (!take(token)) return false;
  const bool natural = token.kind == Token::Kind::Natural && token.natural <= static_cast<uint64_t>(most);
  const bool negative = token.kind == Token::Kind::Negative && token.negative >= least;
  value = natural ? static_cast<int64_t>(token.natural) : token.negative;
  if (natural || negative) return true;
  return expected("an integer from " + std::to_string(least) + " to " + std::to_string(most), token);
}

bool Reader::natural(uint64_t& value, uint64_t most) {
  Token token;
  if (!take(token)) return false;
  value = token.natural;
  if (token.kind == Token::Kind::Natural && value <= most) return true;
  return expected("an integer from 0 to " + std::to_string(most), token);
}

bool Reader::real(double& value) {
  Token token;
  if (!take(token)) return false;
  // Up to 2^53 every integer is a double.
  constexpr int64_t exact = int64_t{1} << 53;
  switch (token.kind) {
    case Token::Kind::Single:
    case Token::Kind::Real:
      value = token.real;
      return true;
    case Token::Kind::Natural:
      if (token.natural > exact) break;
      value = static_cast<double>(token.natural);
      return true;
    case Token::Kind::Negative:
      if (token.negative < -exact) break;
      value = static_cast<double>(token.negative);
      return true;
    default:
      break;
  }
  return expected("a double", token);
}

bool Reader::single(float& value) {
  double wide = 0;
  if (!real(wide)) return false;
  value = static_cast<float>(wide);
  if (std::isnan(wide) || static_cast<double>(value) == wide) return true;
  return fail("expected a float, got " + std::to_string(wide) + ", which no float equals");
}

bool Reader::text(std::string& value) {
  Token token;
  if (!take(token)) return false;
  if (token.kind != Token::Kind::Text) return expected("a string", token);
  value = token.text;
  return true;
}

bool Reader::bytes(std::string_view& value) {
  Token token;
  if (!take(token)) return false;
  value = token.text;
  return token.kind == Token::Kind::Bytes || expected("raw bytes", token);
}

bool Reader::tensor(at::Tensor& value) {
  Token token;
  if (!take(token)) return false;
  if (!token.is(tensor_extension, index_bytes)) return expected("a tensor", token);
  const char* from = token.text.data();
  const auto index = wire::take<uint32_t>(from);
  if (index >= tensors_.size()) {
    return fail("refers to tensor " + std::to_string(index) + " of " + std::to_string(tensors_.size()));
  }
  value = tensors_[index];
  return true;
}

bool Reader::reference(std::shared_ptr<RefHandle>& value) {
  Token token;
  if (!take(token)) return false;
  if (!token.is(reference_extension, index_bytes)) return expected("a reference", token);
  const char* from = token.text.data();
  const auto index = wire::take<uint32_t>(from);
  const size_t count = references_ ? references_->size() : 0;
  if (index >= count) return fail("refers to reference " + std::to_string(index) + " of " + std::to_string(count));
  value = (*references_)[index];
  return true;
}

bool Reader::scalar(c10::Scalar& value) {
  Token token;
  if (!take(token)) return false;
  switch (token.kind) {
    case Token::Kind::Boolean:
      value = token.natural != 0;
      return true;
    case Token::Kind::Negative:
      value = token.negative;
      return true;
    case Token::Kind::Real:
      value = token.real;
      return true;
    case Token::Kind::Natural:
      if (token.natural <= INT64_MAX) {
        value = static_cast<int64_t>(token.natural);
      } else if (const auto large = wire::compat::scalar_above_int64(token.natural)) {
        value = *large;
      } else {
        return fail("the scalar " + std::to_string(token.natural) +
                    " is beyond what libtorch " TORCH_VERSION " can hold");
      }
      return true;
    default:
      break;
  }
  if (!token.is(complex_extension, complex_bytes)) return expected("a scalar", token);
  const char* from = token.text.data();
  const auto real = wire::take<double>(from);
  value = c10::complex<double>(real, wire::take<double>(from));
  return true;
}

bool Reader::begin(size_t count, size_t bytes_each) {
  if (count > limits_.elements) return fail(over_limit("a container", count, limits_.elements));
  if (count > bytes_left() / bytes_each) {
    return fail("a container of " + std::to_string(count) + " in " + std::to_string(bytes_left()) + " bytes");
  }
  if (++depth_ > limits_.depth) return fail(over_limit("values nested to a depth", depth_, limits_.depth));
  return true;
}

bool Reader::begin_array(size_t& count) {
  Token token;
  if (!take(token)) return false;
  count = token.natural;
  return token.kind == Token::Kind::Array ? begin(count, 1) : expected("an array", token);
}

bool Reader::begin_array_of(size_t count, std::string_view what) {
  Token token;
  if (!take(token)) return false;
  if (token.kind == Token::Kind::Array && token.natural == count) return begin(count, 1);
  return expected(std::string(what) + " of " + std::to_string(count), token);
}

bool Reader::begin_map(size_t& count) {
  Token token;
  if (!take(token)) return false;
  count = token.natural;
  return token.kind == Token::Kind::Map ? begin(count, 2) : expected("a map", token);
}

}  // namespace farad::detail
