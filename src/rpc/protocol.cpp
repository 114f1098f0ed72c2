#include "rpc/protocol.h"

#include <c10/util/Exception.h>

#include <iterator>
#include <limits>
#include <span>

#include "wire/bytes.h"
#include "wire/value.h"

namespace farad::rpc {
namespace {

constexpr uint32_t one_way = 1, named = 2, makes_reference = 4, on_object = 8, has_loans = 16, has_note = 32;
/// The body of a reply begins with a byte of these.
constexpr char failed = 1, with_loans = 2, with_note = 4, all_of_reply = failed | with_loans | with_note;

using NoteLength = uint16_t;

using LoanParts = std::tuple<uint64_t, uint64_t, uint16_t, uint64_t, uint64_t>;

void write_loans(detail::Writer out, const std::vector<Loan>& loans) {
  std::vector<LoanParts> parts;
  for (const auto& loan : loans) {
    parts.emplace_back(loan.id.maker, loan.id.number, loan.owner.value, loan.lend, loan.hold);
  }
  detail::write(out, parts);
}

bool read_loans(detail::Reader& in, std::vector<Loan>& loans) {
  std::vector<LoanParts> parts;
  if (!detail::read(in, parts)) return false;
  for (const auto& [maker, number, owner, lend, hold] : parts) {
    loans.push_back({{maker, number}, base::Rank(owner), lend, hold});
  }
  return true;
}

void write_id(detail::Writer out, const detail::RefId& id) { detail::write(out, std::pair(id.maker, id.number)); }

bool read_id(detail::Reader& in, std::optional<detail::RefId>& id) {
  std::pair<uint64_t, uint64_t> parts;
  if (!detail::read(in, parts)) return false;
  id = {parts.first, parts.second};
  return true;
}

void write_note(wire::Message& message, const wire::Bytes& note) {
  TORCH_CHECK(note.size() <= std::numeric_limits<NoteLength>::max(), "[rpc] a note of ", note.size(), " bytes");
  const size_t at = message.body.size();
  message.body.resize(at + sizeof(NoteLength));
  wire::put(message.body.data() + at, static_cast<NoteLength>(note.size()));
  message.body.insert(message.body.end(), note.begin(), note.end());
}

/// The note at `at`, which is moved behind it; none if it is cut off.
std::optional<std::span<const char>> read_note(const wire::Message& message, size_t& at) {
  const std::span<const char> body(message.body);
  if (body.size() - at < sizeof(NoteLength)) return std::nullopt;
  const char* next = body.data() + at;
  const auto length = wire::take<NoteLength>(next);
  at += sizeof(NoteLength);
  if (body.size() - at < length) return std::nullopt;
  at += length;
  return body.subspan(at - length, length);
}

void append(wire::Message& message, detail::Packet packet) {
  message.body.insert(message.body.end(), packet.body.begin(), packet.body.end());
  message.tensors = std::move(packet.tensors);
}

/// Mostly what comes in front is a few bytes, for which a small packet makes room where it is.
void put_in_front(std::span<const char> bytes, wire::Message& message, detail::Packet packet) {
  message.body = std::move(packet.body);
  message.body.insert(message.body.begin(), bytes.begin(), bytes.end());
  message.tensors = std::move(packet.tensors);
}

}  // namespace

wire::Message encode_call(uint64_t id, const CallHeader& header, detail::Packet arguments) {
  wire::Message message;
  message.kind = static_cast<uint8_t>(Kind::Call);
  message.tag = id;
  const uint32_t behind = (header.makes ? makes_reference : 0) | (header.object ? on_object : 0) |
                          (header.name.empty() ? 0 : named) | (header.loans.empty() ? 0 : has_loans) |
                          (header.note.empty() ? 0 : has_note);
  char fixed[CallHeader::bytes];
  char* next = fixed;
  next = wire::put(next, header.function.module);
  next = wire::put(next, header.function.offset);
  next = wire::put(next, header.timeout_ms);
  wire::put<uint32_t>(next, behind | (header.one_way ? one_way : 0));
  if (!behind) {
    put_in_front(fixed, message, std::move(arguments));
    return message;
  }
  message.body.reserve(CallHeader::bytes + arguments.body.size() + 64);
  message.body.assign(std::begin(fixed), std::end(fixed));
  if (!header.note.empty()) write_note(message, header.note);
  if (header.makes) write_id(wire::writer(message), *header.makes);
  if (header.object) write_id(wire::writer(message), *header.object);
  if (!header.name.empty()) wire::writer(message).text(header.name);
  if (!header.loans.empty()) write_loans(wire::writer(message), header.loans);
  append(message, std::move(arguments));
  return message;
}

base::Status decode_call(const wire::Message& message, CallHeader& header, size_t& arguments_at) {
  if (message.body.size() < CallHeader::bytes) return {base::Code::Protocol, "[rpc] a call that is cut off"};
  const char* next = message.body.data();
  header.function.module = wire::take<uint64_t>(next);
  header.function.offset = wire::take<uint64_t>(next);
  header.timeout_ms = wire::take<uint32_t>(next);
  const auto flags = wire::take<uint32_t>(next);
  header.one_way = flags & one_way;
  size_t rest = CallHeader::bytes;
  if (flags & has_note) {
    const auto note = read_note(message, rest);
    if (!note) return {base::Code::Protocol, "[rpc] a call whose note is cut off"};
    header.note.assign(note->begin(), note->end());
  }
  detail::Reader in(std::span(message.body).subspan(rest), message.tensors);
  const bool fine = (!(flags & makes_reference) || read_id(in, header.makes)) &&
                    (!(flags & on_object) || read_id(in, header.object)) &&
                    (!(flags & named) || in.text(header.name)) &&
                    (!(flags & has_loans) || read_loans(in, header.loans));
  if (!fine) return {base::Code::Protocol, "[rpc] a call with a bad header: " + in.error()};
  arguments_at = message.body.size() - in.bytes_left();
  return {};
}

wire::Message encode_result(uint64_t id, const ReplyHeader& header, detail::Packet result) {
  wire::Message message;
  message.kind = static_cast<uint8_t>(Kind::Reply);
  message.tag = id;
  const auto flags = static_cast<char>((header.loans.empty() ? 0 : with_loans) | (header.note.empty() ? 0 : with_note));
  if (!flags) {
    put_in_front({&flags, 1}, message, std::move(result));
    return message;
  }
  message.body.reserve(1 + sizeof(NoteLength) + header.note.size() + result.body.size());
  message.body.push_back(flags);
  if (!header.note.empty()) write_note(message, header.note);
  if (!header.loans.empty()) write_loans(wire::writer(message), header.loans);
  append(message, std::move(result));
  return message;
}

base::Status decode_reply(const wire::Message& message, ReplyHeader& header, size_t& result_at) {
  if (message.body.empty() || (message.body[0] & ~all_of_reply))
    return {base::Code::Protocol, "[rpc] a reply that is none"};
  const char flags = message.body[0];
  header.failed = flags & failed;
  result_at = 1;
  if (flags & with_note) {
    const auto note = read_note(message, result_at);
    if (!note) return {base::Code::Protocol, "[rpc] a reply whose note is cut off"};
    header.note.assign(note->begin(), note->end());
  }
  if (flags & with_loans) {
    detail::Reader in(std::span(message.body).subspan(result_at), message.tensors);
    if (!read_loans(in, header.loans)) return {base::Code::Protocol, "[rpc] a reply with bad loans: " + in.error()};
    result_at = message.body.size() - in.bytes_left();
  }
  return {};
}

wire::Message encode_failure(uint64_t id, const Failure& failure) {
  wire::Message message;
  message.kind = static_cast<uint8_t>(Kind::Reply);
  message.tag = id;
  message.body.push_back(failed);
  wire::encode(std::make_tuple(static_cast<int>(failure.code), failure.type, failure.text, failure.hops, failure.stack),
               message);
  return message;
}

base::Status decode_failure(const wire::Message& message, size_t failure_at, Failure& failure) {
  detail::Reader in(std::span(message.body).subspan(failure_at), message.tensors);
  std::tuple<int, std::string, std::string, std::vector<std::string>, std::string> parts;
  if (!detail::read(in, parts) || !in.finish()) return {base::Code::Protocol, "[rpc] a bad failure: " + in.error()};
  const int code = std::get<0>(parts);
  if (code <= static_cast<int>(base::Code::Ok) || code > static_cast<int>(base::Code::Closed)) {
    return {base::Code::Protocol, "[rpc] a failure with the unknown code " + std::to_string(code)};
  }
  failure.code = static_cast<base::Code>(code);
  failure.type = std::move(std::get<1>(parts));
  failure.text = std::move(std::get<2>(parts));
  failure.hops = std::move(std::get<3>(parts));
  failure.stack = std::move(std::get<4>(parts));
  return {};
}

}  // namespace farad::rpc
