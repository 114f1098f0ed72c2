#include "rpc/overload.h"

#include <ATen/core/List.h>
#include <ATen/core/jit_type.h>
#include <c10/core/Device.h>
#include <farad/detail/ivalue.h>

#include <optional>

namespace farad::rpc {
namespace {

using c10::IValue;
using c10::Type;
using c10::TypeKind;

/// Gives one value the type that a schema asks for, if it can be given it.
class Conversion {
 public:
  bool exact() const { return exact_; }

  /// `has_length`: for a list of fixed length, which one number may stand for.
  std::optional<IValue> operator()(const IValue& value, const Type& type, bool has_length = false) {
    switch (type.kind()) {
      case TypeKind::OptionalType:
        if (value.isNone()) return value;
        return (*this)(value, *type.expectRef<c10::OptionalType>().getElementType(), has_length);
      case TypeKind::TensorType:
        return take_if(value.isTensor(), value);
      case TypeKind::NumberType:
        if (value.isInt() || value.isDouble() || value.isComplexDouble()) return value;
        if (value.isBool()) return converted(value);
        return number_in(value, [](const c10::Scalar&) { return true; });
      case TypeKind::FloatType:
        if (value.isDouble()) return value;
        if (value.isInt()) return converted(static_cast<double>(value.toInt()));
        return number_in(value, [](const c10::Scalar& number) { return number.isFloatingPoint(); });
      case TypeKind::ComplexType:
        if (value.isComplexDouble()) return value;
        if (value.isInt() || value.isDouble()) return converted(value.toScalar().toComplexDouble());
        return std::nullopt;
      case TypeKind::IntType:
      case TypeKind::SymIntType:
        if (value.isInt()) return value;
        return number_in(value, [](const c10::Scalar& number) { return number.isIntegral(/*includeBool=*/false); });
      case TypeKind::BoolType:
        return take_if(value.isBool(), value);
      case TypeKind::StringType:
        return take_if(value.isString(), value);
      case TypeKind::DeviceObjType:
        return value.isString() ? device(value.toStringRef()) : take_if(value.isDevice(), value);
      case TypeKind::ListType:
        return list(value, type.expectRef<c10::ListType>().getElementType(), has_length);
      default:
        return std::nullopt;
    }
  }

 private:
  static std::optional<IValue> take_if(bool fits, const IValue& value) {
    if (!fits) return std::nullopt;
    return value;
  }

  std::optional<IValue> converted(IValue value) {
    exact_ = false;
    return value;
  }

  template <class Accept>
  std::optional<IValue> number_in(const IValue& value, Accept accept) {
    if (!value.isTensor()) return std::nullopt;
    const at::Tensor& tensor = value.toTensor();
    if (!tensor.defined() || tensor.dim() != 0 || tensor.requires_grad()) return std::nullopt;
    const c10::Scalar number = tensor.item();
    if (!accept(number)) return std::nullopt;
    return converted(number);
  }

  std::optional<IValue> device(const std::string& name) {
    try {
      return converted(c10::Device(name));
    } catch (const c10::Error&) {
      return std::nullopt;
    }
  }

  std::optional<IValue> list(const IValue& value, const c10::TypePtr& element, bool has_length) {
    std::vector<IValue> given;
    std::string why;
    if (!detail::elements_of(value, given, why)) {
      const auto kind = element->kind();
      if (!has_length || (kind != TypeKind::IntType && kind != TypeKind::SymIntType && kind != TypeKind::FloatType)) {
        return std::nullopt;
      }
      exact_ = false;
      given = {value};  // Kernels repeat it to the length they need.
    }
    if (value.isTuple()) exact_ = false;
    for (IValue& each : given) {
      auto fitting = (*this)(each, *element);
      if (!fitting) return std::nullopt;
      each = std::move(*fitting);
    }
    // Where a symbolic integer may be, ours are plain ones.
    const bool symbolic = element->kind() == TypeKind::SymIntType;
    return detail::make_list(symbolic ? c10::TypePtr(c10::IntType::get()) : element, std::move(given));
  }

  bool exact_ = true;
};

bool travels(const Type& type) {
  switch (type.kind()) {
    case TypeKind::OptionalType:
      return true;  // None does.
    case TypeKind::ListType:
      return travels(*type.expectRef<c10::ListType>().getElementType());
    case TypeKind::TensorType:
    case TypeKind::NumberType:
    case TypeKind::FloatType:
    case TypeKind::ComplexType:
    case TypeKind::IntType:
    case TypeKind::SymIntType:
    case TypeKind::BoolType:
    case TypeKind::StringType:
    case TypeKind::DeviceObjType:
      return true;
    default:
      return false;
  }
}

}  // namespace

Match match(const c10::FunctionSchema& schema, const std::vector<IValue>& arguments) {
  const auto& parameters = schema.arguments();
  if (arguments.size() > parameters.size()) return {};
  Match match;
  match.stack.reserve(parameters.size());
  Conversion convert;
  bool in_keyword_place = false;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& parameter = parameters[i];
    if (i < arguments.size()) {
      auto fitting = convert(arguments[i], *parameter.type(), parameter.N().has_value());
      if (!fitting) return {};
      match.stack.push_back(std::move(*fitting));
      in_keyword_place |= parameter.kwarg_only();
    } else if (parameter.default_value()) {
      match.stack.push_back(*parameter.default_value());
    } else {
      return {};
    }
  }
  if (in_keyword_place) {
    match.fit = convert.exact() ? Fit::InKeywordPlace : Fit::ConvertedInKeywordPlace;
  } else {
    match.fit = convert.exact() ? Fit::Exact : Fit::Converted;
  }
  return match;
}

std::string mismatch(const c10::FunctionSchema& schema, const std::vector<IValue>& arguments) {
  const auto& parameters = schema.arguments();
  if (arguments.size() > parameters.size()) {
    return "it takes " + std::to_string(parameters.size()) + (parameters.size() == 1 ? " argument" : " arguments");
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& parameter = parameters[i];
    if (i >= arguments.size()) {
      if (!parameter.default_value()) return "\"" + parameter.name() + "\" is missing";
    } else if (!Conversion()(arguments[i], *parameter.type(), parameter.N().has_value())) {
      return "\"" + parameter.name() + "\" is a " + parameter.type()->str() + ", got " + detail::kind_of(arguments[i]);
    }
  }
  return "it fits";
}

bool can_travel(const c10::FunctionSchema& schema) {
  for (const auto& parameter : schema.arguments()) {
    if (!travels(*parameter.type())) return false;
  }
  for (const auto& result : schema.returns()) {
    if (!travels(*result.type())) return false;
  }
  return true;
}

}  // namespace farad::rpc
