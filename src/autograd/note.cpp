#include "autograd/note.h"

#include "wire/bytes.h"

namespace farad::autograd {
namespace {

constexpr size_t note_size =
    sizeof(int64_t) + sizeof(uint8_t) + sizeof(uint64_t) + sizeof(uint32_t) + sizeof(uint64_t) + sizeof(uint64_t);

}  // namespace

void encode(const Note& note, wire::Bytes& bytes) {
  bytes.resize(note_size);
  char* next = wire::put(bytes.data(), note.context.value);
  next = wire::put<uint8_t>(next, note.no_grad);
  next = wire::put(next, note.pair.value);
  next = wire::put(next, note.tensors);
  next = wire::put(next, note.path);
  wire::put(next, note.rerun.value);
}

base::Status decode(std::span<const char> bytes, Note& note) {
  if (bytes.size() != note_size) {
    return {base::Code::Protocol, "[autograd] a note of " + std::to_string(bytes.size()) + " bytes"};
  }
  const char* next = bytes.data();
  note.context = ContextId(wire::take<int64_t>(next));
  note.no_grad = wire::take<uint8_t>(next) != 0;
  note.pair = PairId(wire::take<uint64_t>(next));
  note.tensors = wire::take<uint32_t>(next);
  note.path = wire::take<uint64_t>(next);
  note.rerun = RerunId(wire::take<uint64_t>(next));
  return {};
}

}  // namespace farad::autograd
