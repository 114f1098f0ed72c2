#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/core/jit_type.h>
#include <c10/core/Device.h>
#include <farad/detail/by_name.h>

namespace farad::detail {
namespace {

using c10::IValue;
using c10::TypePtr;

/// The first element of the array that each value is; its content follows. Part of the wire format: never renumber.
enum class Tag : uint8_t {
  None = 0,
  Tensor = 1,
  Bool = 2,
  Int = 3,
  Float = 4,
  Complex = 5,
  Str = 6,
  Device = 7,
  List = 8,  ///< each element says what it is
  Tensors = 9,
  Bools = 10,
  Ints = 11,
  Floats = 12,
  Tuple = 13,
  Dict = 14,  ///< key, value, key, value, ...
};
constexpr auto last_tag = Tag::Dict;

class ValueWriter {
 public:
  explicit ValueWriter(Writer& out) : out_(out) {}

  void write(const IValue& value) {
    if (value.isNone()) return begin(Tag::None, 0), out_.end();
    if (value.isTensor()) return one(Tag::Tensor, [&] { out_.tensor(value.toTensor()); });
    if (value.isBool()) return one(Tag::Bool, [&] { out_.boolean(value.toBool()); });
    if (value.isInt()) return one(Tag::Int, [&] { out_.integer(value.toInt()); });
    if (value.isDouble()) return one(Tag::Float, [&] { out_.real(value.toDouble()); });
    if (value.isComplexDouble()) return one(Tag::Complex, [&] { out_.scalar(value.toComplexDouble()); });
    if (value.isString()) return one(Tag::Str, [&] { out_.text(value.toStringRef()); });
    if (value.isDevice()) return one(Tag::Device, [&] { out_.text(value.toDevice().str()); });
    if (value.isList()) return write_list(value);
    if (value.isTuple()) return write_tuple(value);
    if (value.isGenericDict()) return write_dict(value);
    throw Error("[rpc] a " + kind_of(value) +
                " does not travel; what does: None, Tensor, bool, int, float, complex, str, "
                "Device, and lists, tuples and dicts of them");
  }

 private:
  void begin(Tag tag, size_t count) {
    out_.begin_array(1 + count);
    out_.natural(static_cast<uint64_t>(tag));
  }
  template <class Write>
  void one(Tag tag, Write write_content) {
    begin(tag, 1);
    write_content();
    out_.end();
  }

  void write_list(const IValue& value) {
    const auto values = value.toListRef();
    if (value.isTensorList()) return each(Tag::Tensors, values, [&](const IValue& v) { out_.tensor(v.toTensor()); });
    if (value.isBoolList()) return each(Tag::Bools, values, [&](const IValue& v) { out_.boolean(v.toBool()); });
    if (value.isIntList()) return each(Tag::Ints, values, [&](const IValue& v) { out_.integer(v.toInt()); });
    if (value.isDoubleList()) return each(Tag::Floats, values, [&](const IValue& v) { out_.real(v.toDouble()); });
    each(Tag::List, values, [&](const IValue& v) { write(v); });
  }
  void write_tuple(const IValue& value) {
    each(Tag::Tuple, value.toTupleRef().elements(), [&](const IValue& v) { write(v); });
  }
  void write_dict(const IValue& value) {
    const auto dict = value.toGenericDict();
    begin(Tag::Dict, 2 * dict.size());
    for (const auto& entry : dict) {
      const IValue& key = entry.key();
      if (!key.isBool() && !key.isInt() && !key.isDouble() && !key.isString()) {
        throw Error("[rpc] a dict travels if its keys are bool, int, float or str; this one has a " + kind_of(key));
      }
      write(key);
      write(entry.value());
    }
    out_.end();
  }
  template <class Values, class Write>
  void each(Tag tag, const Values& values, Write write_one) {
    begin(tag, values.size());
    for (const IValue& value : values) write_one(value);
    out_.end();
  }

  Writer& out_;
};

/// What elements that were read one by one have in common.
class CommonType {
 public:
  void add(const TypePtr& type) {
    if (!common_) {
      common_ = type;
    } else if (*common_ != *type) {
      common_ = any_type();
    }
  }
  TypePtr get() const { return common_ ? common_ : any_type(); }

 private:
  TypePtr common_;
};

/// Gives values with the types to put them into containers by.
class ValueReader {
 public:
  explicit ValueReader(Reader& in) : in_(in) {}

  bool read(IValue& value, TypePtr& type) {
    size_t count = 0;
    uint64_t number = 0;
    if (!in_.begin_array(count)) return false;
    if (count == 0) return in_.fail("a value without what it is");
    if (!in_.natural(number, static_cast<uint64_t>(last_tag))) return in_.fail_in("what a value is");
    if (!read_content(static_cast<Tag>(number), count - 1, value, type)) return false;
    in_.end();
    return true;
  }

 private:
  bool read_content(Tag tag, size_t count, IValue& value, TypePtr& type) {
    switch (tag) {
      case Tag::None:
        type = c10::NoneType::get();
        value = {};
        return exactly(0, count);
      case Tag::Tensor:
        return one<at::Tensor>(count, value, type);
      case Tag::Bool:
        return one<bool>(count, value, type);
      case Tag::Int:
        return one<int64_t>(count, value, type);
      case Tag::Float:
        return one<double>(count, value, type);
      case Tag::Str:
        return one<std::string>(count, value, type);
      case Tag::Complex:
        return read_complex(count, value, type);
      case Tag::Device:
        return read_device(count, value, type);
      case Tag::List:
        return read_list(count, value, type);
      case Tag::Tensors:
        return many<at::Tensor>(count, value, type);
      case Tag::Bools:
        return many<bool>(count, value, type);
      case Tag::Ints:
        return many<int64_t>(count, value, type);
      case Tag::Floats:
        return many<double>(count, value, type);
      case Tag::Tuple:
        return read_tuple(count, value, type);
      case Tag::Dict:
        return read_dict(count, value, type);
    }
    return in_.fail("a value of no kind");
  }

  bool exactly(size_t expected, size_t count) {
    return count == expected ||
           in_.fail("expected " + std::to_string(expected) + " parts of a value, got " + std::to_string(count));
  }

  template <class T>
  bool one(size_t count, IValue& value, TypePtr& type) {
    T content{};
    if (!exactly(1, count) || !detail::read(in_, content)) return false;
    type = AsValue<T>::type();
    value = std::move(content);
    return true;
  }

  template <class T>
  bool many(size_t count, IValue& value, TypePtr& type) {
    c10::List<T> list;
    for (size_t i = 0; i < count; ++i) {
      T content{};
      if (!detail::read(in_, content)) return in_.fail_in("element " + std::to_string(i));
      list.push_back(std::move(content));
    }
    type = AsValue<std::vector<T>>::type();
    value = std::move(list);
    return true;
  }

  bool read_complex(size_t count, IValue& value, TypePtr& type) {
    c10::Scalar content;
    if (!exactly(1, count) || !in_.scalar(content)) return false;
    if (!content.isComplex()) return in_.fail("expected a complex number");
    type = c10::ComplexType::get();
    value = content.toComplexDouble();
    return true;
  }

  bool read_device(size_t count, IValue& value, TypePtr& type) {
    std::string name;
    if (!exactly(1, count) || !in_.text(name)) return false;
    type = c10::DeviceObjType::get();
    try {
      value = c10::Device(name);
    } catch (const c10::Error&) {
      return in_.fail("\"" + name + "\" is no device");
    }
    return true;
  }

  bool read_several(size_t count, std::vector<IValue>& values, CommonType& common) {
    for (size_t i = 0; i < count; ++i) {
      TypePtr type;
      if (!read(values.emplace_back(), type)) return in_.fail_in("element " + std::to_string(i));
      common.add(type);
    }
    return true;
  }
  bool read_list(size_t count, IValue& value, TypePtr& type) {
    std::vector<IValue> values;
    CommonType common;
    if (!read_several(count, values, common)) return false;
    type = list_type(common.get());
    value = make_list(common.get(), std::move(values));
    return true;
  }
  bool read_tuple(size_t count, IValue& value, TypePtr& type) {
    std::vector<IValue> values;
    CommonType common;
    if (!read_several(count, values, common)) return false;
    type = any_type();
    value = make_tuple(std::move(values));
    return true;
  }

  bool read_dict(size_t count, IValue& value, TypePtr& type) {
    if (count % 2 != 0) return in_.fail("a dict whose last key has no value");
    ValuePairs pairs;
    CommonType keys;
    CommonType mapped;
    for (size_t i = 0; i < count / 2; ++i) {
      auto& pair = pairs.emplace_back();
      TypePtr key_type;
      TypePtr mapped_type;
      if (!read(pair.first, key_type)) return in_.fail_in("key " + std::to_string(i));
      if (!read(pair.second, mapped_type)) return in_.fail_in("value " + std::to_string(i));
      keys.add(key_type);
      mapped.add(mapped_type);
    }
    const TypePtr key_type = pairs.empty() ? c10::StringType::get() : keys.get();
    switch (key_type->kind()) {
      case c10::TypeKind::BoolType:
      case c10::TypeKind::IntType:
      case c10::TypeKind::FloatType:
      case c10::TypeKind::StringType:
        break;
      default:
        return in_.fail("the keys of a dict are all bool, int, float or str");
    }
    type = any_type();
    value = make_dict(key_type, mapped.get(), std::move(pairs));
    if (value.toGenericDict().size() != count / 2) return in_.fail("a key comes twice in a dict");
    return true;
  }

  Reader& in_;
};

}  // namespace

void Codec<IValue>::write(Writer& out, const IValue& value) { ValueWriter(out).write(value); }

bool Codec<IValue>::read(Reader& in, IValue& value) {
  TypePtr type;
  return ValueReader(in).read(value, type);
}

std::vector<IValue> read_values(Reader& in, std::string_view name) {
  std::vector<IValue> values;
  if (!detail::read(in, values)) {
    throw BadArguments("[rpc] call of \"" + std::string(name) + "\": arguments that are none: " + in.error());
  }
  return values;
}

Packet pack_values(const std::vector<IValue>& values, const ValueLimits& limits) {
  Packet packet;
  Writer out(packet.body, packet.tensors, limits);
  detail::write(out, values);
  return packet;
}

}  // namespace farad::detail
