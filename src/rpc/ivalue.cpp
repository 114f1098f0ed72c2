#include <farad/detail/ivalue.h>

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/core/jit_type.h>
#include <farad/detail/by_name.h>

namespace farad::detail {

using c10::IValue;
using c10::TypePtr;

namespace {

template <class Values>
std::string join_kinds(const Values& values) {
  std::string text;
  for (const IValue& value : values) text += (text.empty() ? "" : ", ") + kind_of(value);
  return "(" + text + ")";
}

bool expected(std::string& why, const char* what, const IValue& got) {
  return fail_value(why, std::string("expected ") + what + ", got " + kind_of(got));
}

}  // namespace

std::string kind_of(const IValue& value) {
  if (value.isBool()) return "bool";
  if (value.isInt()) return "int";
  if (value.isDouble()) return "float";
  if (value.isComplexDouble()) return "complex";
  if (value.isString()) return "str";
  if (value.isList()) return value.toList().elementType()->str() + "[]";
  if (value.isTuple()) return join_kinds(value.toTupleRef().elements());
  if (value.isGenericDict()) return "Dict";
  return value.tagKind();
}

std::string kinds_of(const std::vector<IValue>& values) { return join_kinds(values); }

TypePtr any_type() { return c10::AnyType::get(); }
TypePtr list_type(TypePtr element) { return c10::ListType::create(std::move(element)); }

IValue make_list(TypePtr element, std::vector<IValue> values) {
  c10::impl::GenericList list(std::move(element));
  list.reserve(values.size());
  for (IValue& value : values) list.push_back(std::move(value));
  return list;
}

IValue make_tuple(std::vector<IValue> values) { return c10::ivalue::Tuple::create(std::move(values)); }

IValue make_dict(TypePtr key, TypePtr mapped, ValuePairs pairs) {
  c10::impl::GenericDict dict(std::move(key), std::move(mapped));
  for (auto& [each, value] : pairs) dict.insert(std::move(each), std::move(value));
  return dict;
}

bool from_value(const IValue& value, at::Tensor& out, std::string& why) {
  if (!value.isTensor()) return expected(why, "a Tensor", value);
  out = value.toTensor();
  return true;
}
bool from_value(const IValue& value, bool& out, std::string& why) {
  if (!value.isBool()) return expected(why, "a bool", value);
  out = value.toBool();
  return true;
}
bool from_value(const IValue& value, int64_t& out, std::string& why) {
  if (!value.isInt()) return expected(why, "an int", value);
  out = value.toInt();
  return true;
}
bool from_value(const IValue& value, double& out, std::string& why) {
  if (!value.isDouble() && !value.isInt()) return expected(why, "a float", value);
  out = value.isInt() ? static_cast<double>(value.toInt()) : value.toDouble();
  return true;
}
bool from_value(const IValue& value, std::string& out, std::string& why) {
  if (!value.isString()) return expected(why, "a str", value);
  out = value.toStringRef();
  return true;
}
bool from_value(const IValue& value, c10::Scalar& out, std::string& why) {
  if (!value.isScalar()) return expected(why, "a Scalar", value);
  out = value.toScalar();
  return true;
}

TypePtr type_for(const at::Tensor*) { return c10::TensorType::get(); }
TypePtr type_for(const bool*) { return c10::BoolType::get(); }
TypePtr type_for(const int64_t*) { return c10::IntType::get(); }
TypePtr type_for(const double*) { return c10::FloatType::get(); }
TypePtr type_for(const std::string*) { return c10::StringType::get(); }
TypePtr type_for(const c10::Scalar*) { return c10::AnyType::get(); }  // A list of numbers of any kind.

bool elements_of(const IValue& value, std::vector<IValue>& out, std::string& why) {
  if (value.isList()) {
    out = value.toListRef().vec();
  } else if (value.isTuple()) {
    const auto& elements = value.toTupleRef().elements();
    out.assign(elements.begin(), elements.end());
  } else {
    return expected(why, "a list or tuple", value);
  }
  return true;
}

bool pairs_of(const IValue& value, ValuePairs& out, std::string& why) {
  if (!value.isGenericDict()) return expected(why, "a Dict", value);
  for (const auto& entry : value.toGenericDict()) out.emplace_back(entry.key(), entry.value());
  return true;
}

bool fail_value(std::string& why, std::string text) {
  why = std::move(text);
  return false;
}
bool fail_value_in(std::string& why, std::string_view where) {
  why = std::string(where) + ": " + why;
  return false;
}

}  // namespace farad::detail
