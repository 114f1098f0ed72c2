#include "net/rendezvous/codec.h"

#include <msgpack.hpp>

#include <exception>

namespace farad::net::meeting {
namespace {

constexpr uint8_t version = 1;

using Packer = msgpack::packer<msgpack::sbuffer>;
using Object = msgpack::object;

/// The elements of an array, taken one after the other; whatever is not as expected throws msgpack::type_error.
class Fields {
 public:
  Fields(const Object& array, uint32_t count) {
    if (array.type != msgpack::type::ARRAY || array.via.array.size != count) throw msgpack::type_error();
    next_ = array.via.array.ptr;
  }
  const Object& object() { return *next_++; }
  template <class T>
  T take() {
    return object().as<T>();
  }

 private:
  const Object* next_;
};

void pack(Packer& out, const Member& member) {
  out.pack_array(6);
  out.pack(member.rank.value).pack(member.name).pack(member.machine).pack(member.addresses);
  out.pack(member.birth).pack(member.version);
}

Member unpack_member(const Object& object) {
  Fields fields(object, 6);
  Member member;
  member.rank = base::Rank(fields.take<uint16_t>());
  member.name = fields.take<std::string>();
  member.machine = fields.take<std::string>();
  member.addresses = fields.take<std::map<std::string, std::string>>();
  member.birth = fields.take<uint64_t>();
  member.version = fields.take<std::string>();
  return member;
}

void pack(Packer& out, const base::Status& status) {
  out.pack_array(2);
  out.pack(static_cast<uint8_t>(status.code())).pack(status.message());
}

base::Status unpack_status(const Object& object) {
  Fields fields(object, 2);
  const auto code = fields.take<uint8_t>();
  if (code > static_cast<uint8_t>(base::Code::Closed)) throw msgpack::type_error();
  return {static_cast<base::Code>(code), fields.take<std::string>()};
}

template <class Kind>
Kind unpack_kind(const Object& object, Kind last) {
  const auto kind = object.as<uint8_t>();
  if (kind > static_cast<uint8_t>(last)) throw msgpack::type_error();
  return static_cast<Kind>(kind);
}

std::string text(const msgpack::sbuffer& buffer) { return {buffer.data(), buffer.size()}; }

/// Parses exactly one value within limits and hands it to `read`.
template <class Read>
base::Status decode_with(std::string_view bytes, const char* what, Read read) {
  const auto bad = [&](const std::string& why) {
    return base::Status(base::Code::Protocol, std::string("malformed ") + what + ": " + why);
  };
  try {
    // No length inside can be larger than the whole, and nothing of ours nests deeper than a map in a member in a list.
    const size_t most = bytes.size();
    const msgpack::unpack_limit limit(most, most, most, 0, 0, 8);
    size_t end = 0;
    bool referenced = false;
    const auto handle = msgpack::unpack(bytes.data(), bytes.size(), end, referenced, nullptr, nullptr, limit);
    if (end != bytes.size()) return bad("bytes follow it");
    return read(handle.get());
  } catch (const std::exception& error) {
    return bad(error.what());
  }
}

}  // namespace

std::string encode(const Ask& ask) {
  msgpack::sbuffer buffer;
  Packer out(buffer);
  out.pack_array(4);
  out.pack(version).pack(ask.size).pack(ask.patience_ms);
  pack(out, ask.self);
  return text(buffer);
}

base::Status decode(std::string_view bytes, Ask& out) {
  return decode_with(bytes, "request to join", [&](const Object& object) -> base::Status {
    Fields fields(object, 4);
    if (const auto theirs = fields.take<uint8_t>(); theirs != version)
      return {base::Code::Protocol, "the newcomer speaks version " + std::to_string(theirs) +
                                        " of the rendezvous, the host version " + std::to_string(version) +
                                        "; run the same farad everywhere"};
    out.size = fields.take<int>();
    out.patience_ms = fields.take<int64_t>();
    out.self = unpack_member(fields.object());
    return {};
  });
}

std::string encode(const Answer& answer) {
  msgpack::sbuffer buffer;
  Packer out(buffer);
  out.pack_array(5);
  out.pack(static_cast<uint8_t>(answer.kind)).pack(answer.host).pack(answer.rejoined);
  pack(out, answer.status);
  out.pack_array(static_cast<uint32_t>(answer.members.size()));
  for (const auto& member : answer.members) pack(out, member);
  return text(buffer);
}

base::Status decode(std::string_view bytes, Answer& out) {
  return decode_with(bytes, "answer of the host", [&](const Object& object) -> base::Status {
    Fields fields(object, 5);
    out.kind = unpack_kind(fields.object(), Answer::Kind::Refused);
    out.host = fields.take<std::string>();
    out.rejoined = fields.take<bool>();
    out.status = unpack_status(fields.object());
    const Object& list = fields.object();
    if (list.type != msgpack::type::ARRAY) throw msgpack::type_error();
    out.members.clear();
    for (uint32_t i = 0; i < list.via.array.size; ++i) out.members.push_back(unpack_member(list.via.array.ptr[i]));
    if (out.kind == Answer::Kind::Refused && out.status.ok()) throw msgpack::type_error();
    return {};
  });
}

std::string encode(const Note& note) {
  msgpack::sbuffer buffer;
  Packer out(buffer);
  out.pack_array(4);
  out.pack(static_cast<uint8_t>(note.kind)).pack(note.size);
  pack(out, note.member);
  pack(out, note.status);
  return text(buffer);
}

base::Status decode(std::string_view bytes, Note& out) {
  return decode_with(bytes, "entry", [&](const Object& object) -> base::Status {
    Fields fields(object, 4);
    out.kind = unpack_kind(fields.object(), Note::Kind::Spoilt);
    out.size = fields.take<int>();
    out.member = unpack_member(fields.object());
    out.status = unpack_status(fields.object());
    if (out.kind == Note::Kind::Spoilt && out.status.ok()) throw msgpack::type_error();
    return {};
  });
}

}  // namespace farad::net::meeting
