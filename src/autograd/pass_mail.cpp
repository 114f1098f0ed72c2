#include "autograd/pass_mail.h"

#include <algorithm>

#include "rpc/protocol.h"
#include "wire/bytes.h"

namespace farad::autograd {
namespace {

constexpr size_t head_bytes = 2 + sizeof(uint64_t) + sizeof(uint32_t);

}  // namespace

wire::Message encode(const PassMail& mail, std::vector<at::Tensor> tensors) {
  wire::Message message;
  message.kind = static_cast<uint8_t>(rpc::Kind::Above);
  message.tag = static_cast<uint64_t>(mail.message.context.value);  // for whoever hears that it did not go
  message.tensors = std::move(tensors);
  message.body.resize(head_bytes);
  char* next = message.body.data();
  next = wire::put(next, Mail::Pass);
  next = wire::put<uint8_t>(next, mail.living);
  next = wire::put(next, mail.pair.value);
  wire::put(next, mail.recorded);
  encode(mail.message, message.body);
  return message;
}

base::Status decode(const wire::Message& message, PassMail& mail) {
  if (message.body.size() < head_bytes) return {base::Code::Protocol, "[autograd] a message of a pass that is cut off"};
  const char* next = message.body.data() + 1;
  mail.living = wire::take<uint8_t>(next) != 0;
  mail.pair = PairId(wire::take<uint64_t>(next));
  mail.recorded = wire::take<uint32_t>(next);
  if (auto status = decode(next, message.body.size() - head_bytes, mail.message); !status.ok()) return status;
  const auto& states = mail.message.states;
  const auto said = static_cast<size_t>(std::count(states.begin(), states.end(), TensorState::Tensor));
  if (said != message.tensors.size()) {
    return {base::Code::Protocol, "[autograd] gradients that speak of " + std::to_string(said) + " tensors and have " +
                                      std::to_string(message.tensors.size())};
  }
  return {};
}

}  // namespace farad::autograd
