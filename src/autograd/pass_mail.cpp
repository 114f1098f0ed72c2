#include "autograd/pass_mail.h"

#include <algorithm>

#include "rpc/protocol.h"
#include "wire/bytes.h"

namespace farad::autograd {
namespace {

// what u8 | then of each: living u8 | pair u64 | recorded u32 | size u32 | so many bytes of the protocol
constexpr size_t head_bytes = 1 + sizeof(uint64_t) + 2 * sizeof(uint32_t);
constexpr size_t usual_bytes = 80;

base::Status cut_off() { return {base::Code::Protocol, "[autograd] a message of a pass that is cut off"}; }

}  // namespace

size_t PassMail::tensors() const {
  return static_cast<size_t>(std::count(message.states.begin(), message.states.end(), TensorState::Tensor));
}

wire::Message encode(const std::vector<PassMail>& mails, std::vector<at::Tensor> tensors) {
  wire::Message message;
  message.kind = static_cast<uint8_t>(rpc::Kind::Above);
  message.tensors = std::move(tensors);
  auto& body = message.body;
  body.reserve(1 + mails.size() * usual_bytes);
  body.push_back(static_cast<char>(Mail::Pass));
  for (const auto& mail : mails) {
    const size_t head = body.size(), start = head + head_bytes;
    body.resize(start);
    encode(mail.message, body);
    char* next = body.data() + head;
    next = wire::put<uint8_t>(next, mail.living);
    next = wire::put(next, mail.pair.value);
    next = wire::put(next, mail.recorded);
    wire::put(next, static_cast<uint32_t>(body.size() - start));
  }
  return message;
}

base::Status decode(const wire::Message& message, std::vector<PassMail>& mails, MailHas has) {
  const char* next = message.body.data() + 1;
  const char* const end = message.body.data() + message.body.size();
  size_t said = 0;
  mails.reserve(2);
  do {
    if (end - next < static_cast<ptrdiff_t>(head_bytes)) return cut_off();
    auto& mail = mails.emplace_back();
    mail.living = wire::take<uint8_t>(next) != 0;
    mail.pair = PairId(wire::take<uint64_t>(next));
    mail.recorded = wire::take<uint32_t>(next);
    const auto size = wire::take<uint32_t>(next);
    if (end - next < static_cast<ptrdiff_t>(size)) return cut_off();
    if (auto status = decode(next, size, mail.message); !status.ok()) return status;
    next += size;
    said += mail.tensors();
  } while (next != end);
  if (has == MailHas::Tensors && said != message.tensors.size()) {
    return {base::Code::Protocol, "[autograd] gradients that speak of " + std::to_string(said) + " tensors and have " +
                                      std::to_string(message.tensors.size())};
  }
  return {};
}

}  // namespace farad::autograd
