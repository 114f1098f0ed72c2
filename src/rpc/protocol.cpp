#include "rpc/protocol.h"

#include "wire/bytes.h"
#include "wire/value.h"

namespace farad::rpc {
namespace {

constexpr uint32_t one_way_flag = 1;
constexpr uint32_t named_flag = 2;

}  // namespace

wire::Message encode_call(uint64_t id, const CallHeader& header, const std::string& name, detail::Packet arguments) {
  wire::Message message;
  message.kind = static_cast<uint8_t>(Kind::Call);
  message.tag = id;
  message.body.resize(CallHeader::bytes);
  char* next = message.body.data();
  next = wire::put(next, header.function.module);
  next = wire::put(next, header.function.offset);
  next = wire::put(next, header.timeout_ms);
  next = wire::put<uint32_t>(next, (header.one_way ? one_way_flag : 0) | (name.empty() ? 0 : named_flag));
  wire::put(next, header.context);
  if (!name.empty()) wire::writer(message).text(name);
  message.body.insert(message.body.end(), arguments.body.begin(), arguments.body.end());
  message.tensors = std::move(arguments.tensors);
  return message;
}

base::Status decode_call(const wire::Message& message, CallHeader& header, std::string& name, size_t& arguments_at) {
  if (message.body.size() < CallHeader::bytes) return {base::Code::Protocol, "[rpc] a call that is cut off"};
  const char* next = message.body.data();
  header.function.module = wire::take<uint64_t>(next);
  header.function.offset = wire::take<uint64_t>(next);
  header.timeout_ms = wire::take<uint32_t>(next);
  const auto flags = wire::take<uint32_t>(next);
  header.context = wire::take<int64_t>(next);
  header.one_way = flags & one_way_flag;
  arguments_at = CallHeader::bytes;
  if (!(flags & named_flag)) return {};
  const std::span<const char> rest = std::span(message.body).subspan(CallHeader::bytes);
  detail::Reader in(rest, message.tensors);
  if (!in.text(name)) return {base::Code::Protocol, "[rpc] a call by name without one: " + in.error()};
  arguments_at = message.body.size() - in.bytes_left();
  return {};
}

wire::Message encode_failure(uint64_t id, const Failure& failure) {
  wire::Message message;
  message.kind = static_cast<uint8_t>(Kind::Reply);
  message.tag = id;
  message.body.push_back(bad);
  wire::encode(std::make_tuple(static_cast<int>(failure.code), failure.type, failure.text, failure.hops), message);
  return message;
}

base::Status decode_failure(const wire::Message& message, Failure& failure) {
  detail::Reader in(std::span(message.body).subspan(1), message.tensors);
  std::tuple<int, std::string, std::string, std::vector<std::string>> parts;
  if (!detail::read(in, parts) || !in.finish()) return {base::Code::Protocol, "[rpc] a bad failure: " + in.error()};
  failure.code = static_cast<base::Code>(std::get<0>(parts));
  failure.type = std::move(std::get<1>(parts));
  failure.text = std::move(std::get<2>(parts));
  failure.hops = std::move(std::get<3>(parts));
  return {};
}

}  // namespace farad::rpc
