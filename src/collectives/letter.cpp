#include "collectives/letter.h"

#include "rpc/protocol.h"
#include "wire/value.h"

namespace farad::collectives {

wire::Message encode(const Letter& letter) {
  wire::Message message;
  message.kind = static_cast<uint8_t>(rpc::Kind::Collective);
  wire::encode(letter, message);
  if (letter.contribution.tensor.defined()) message.tensors.push_back(letter.contribution.tensor);
  return message;
}

base::Status decode(wire::Message& message, Letter& letter) {
  auto tensors = std::move(message.tensors);
  message.tensors.clear();
  auto status = wire::decode(message, letter);
  if (!status.ok()) return status;
  if (letter.kind > Letter::Kind::Waits || letter.path.size() < 3 || tensors.size() > 1) {
    return {base::Code::Protocol, "[collectives] a letter that is none, with " + std::to_string(tensors.size()) +
                                      " tensors and a path of " + std::to_string(letter.path.size()) + " steps"};
  }
  if (!tensors.empty()) letter.contribution.tensor = std::move(tensors.front());
  return {};
}

}  // namespace farad::collectives
