#include "collectives/letter.h"

#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include "rpc/protocol.h"
#include "wire/value.h"

namespace farad::collectives {

std::string to_text(const GroupId& id) {
  std::string ranks;
  for (const auto rank : id.ranks) ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
  return "group {" + ranks + "}";
}

at::Tensor passing(const at::Tensor& given) {
  if (!given.defined()) return {};
  if (!given.device().is_cpu() || given.is_conj() || given.is_neg()) {
    const c10::AutoGradMode no_history(false);
    return given.detach().clone(at::MemoryFormat::Contiguous);
  }
  const c10::InferenceMode without_versions;
  auto alias = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(given.storage()),
                                                        c10::DispatchKeySet(c10::DispatchKey::CPU), given.dtype());
  alias.unsafeGetTensorImpl()->set_sizes_and_strides(given.sizes(), given.strides());
  alias.unsafeGetTensorImpl()->set_storage_offset(given.storage_offset());
  return alias;
}

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
  if (letter.kind > Letter::Kind::Skips || letter.path.size() < 3 || tensors.size() > 1) {
    return {base::Code::Protocol, "[collectives] a letter that is none, with " + std::to_string(tensors.size()) +
                                      " tensors and a path of " + std::to_string(letter.path.size()) + " steps"};
  }
  if (!tensors.empty()) letter.contribution.tensor = std::move(tensors.front());
  return {};
}

}  // namespace farad::collectives
