#include "wire/outgoing.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <array>
#include <exception>
#include <limits>
#include <string>

#include "wire/bytes.h"
#include "wire/frame.h"
#include "wire/hand_over.h"
#include "wire/tensor_spec.h"
#include "wire/torch_compat.h"

namespace farad::wire {
namespace {

// Stands in for memory that went away under a send; the trailer then takes the message back.
constexpr std::array<char, 4096> filler{};

std::string tensor_of(size_t index, uint8_t kind) {
  return "[wire] tensor " + std::to_string(index) + " of message kind " + std::to_string(kind);
}

base::Status over_limit(uint8_t kind, const std::string& what, uint64_t limit) {
  return {base::Code::Invalid, "[wire] message kind " + std::to_string(kind) + " has " + what + ", the limit is " +
                                   std::to_string(limit) + "; send less at once, or raise the limit on both sides"};
}

using Specs = c10::SmallVector<TensorSpec, 2>;

base::Status describe_all(const Message& message, const Limits& limits, Specs& specs, frame::Header& header) {
  if (message.body.size() > limits.body_bytes) {
    return over_limit(message.kind, "a body of " + std::to_string(message.body.size()) + " bytes", limits.body_bytes);
  }
  if (message.tensors.size() > limits.tensors) {
    return over_limit(message.kind, std::to_string(message.tensors.size()) + " tensors", limits.tensors);
  }
  specs.resize(message.tensors.size());
  uint64_t table = 0;
  for (size_t i = 0; i < specs.size(); ++i) {
    if (auto complaint = describe(message.tensors[i], limits, specs[i])) {
      return {base::Code::Invalid, tensor_of(i, message.kind) + " cannot be sent: it " + *complaint};
    }
    if (!message.devices.empty()) specs[i].device = message.devices[i];
    // Each is below 2^63, and the sum so far below the limit: no overflow as long as the limit is below 2^63 too.
    header.payload_bytes += specs[i].payload_bytes();
    if (header.payload_bytes > limits.payload_bytes) {
      return over_limit(message.kind, "more than " + std::to_string(header.payload_bytes) + " bytes of tensor data",
                        limits.payload_bytes);
    }
    table += encoded_bytes(specs[i]);
  }
  if (table > std::numeric_limits<uint32_t>::max()) {
    return over_limit(message.kind, "a tensor table of " + std::to_string(table) + " bytes",
                      std::numeric_limits<uint32_t>::max());
  }
  header.kind = message.kind;
  header.tag = message.tag;
  header.table_bytes = static_cast<uint32_t>(table);
  header.body_bytes = static_cast<uint32_t>(message.body.size());
  return {};
}

}  // namespace

base::Status Outgoing::make(Message& message, const Limits& limits, Outgoing& out, Lender* lender) try {
  frame::Header header;
  Specs specs;
  if (auto status = describe_all(message, limits, specs, header); !status.ok()) return status;

  // What may fail comes first: the copies of those that are no block yet.
  const auto may_be_lent = [&](size_t i) {
    return lender && specs[i].layout == TensorSpec::Layout::Dense && specs[i].value_bytes >= lender->least_bytes() &&
           lies_as_a_block(message.tensors[i]);
  };
  c10::SmallVector<std::array<at::Tensor, 2>, 2> sources(specs.size());  // sparse: indices, values
  for (size_t i = 0; i < specs.size(); ++i) {
    const auto& tensor = message.tensors[i];
    if (specs[i].layout == TensorSpec::Layout::SparseCoo) {
      at::NoGradGuard no_history;
      sources[i] = {tensor._indices().contiguous(), as_dense_block(tensor._values()).contiguous()};
    } else if (specs[i].layout == TensorSpec::Layout::Dense && !lies_as_a_block(tensor)) {
      sources[i][1] = as_dense_block(tensor);
    }
  }

  State& state = out.state_;  // Built in place: it is large enough for moving it to show in a small message's time.
  if (state.size != 0) state = {};
  for (size_t i = 0; i < specs.size(); ++i) {
    if (!may_be_lent(i)) continue;
    Handle handle;
    if (lender->lend(message.tensors[i], specs[i].value_bytes, handle)) {
      header.payload_bytes -= specs[i].value_bytes - Handle::bytes;
      specs[i].lent = true;
      state.lent += specs[i].value_bytes;
      auto& bytes = state.handles.emplace_back();
      put(put(bytes.data(), handle.block), handle.meaning);
    }
  }

  state.kind = header.kind;
  state.tag = header.tag;
  state.forgotten = message.forgotten;
  state.body_bytes = header.body_bytes;
  state.payload = header.payload_bytes;
  state.head.resize_for_overwrite(frame::header_bytes + header.table_bytes + header.body_bytes);
  state.size = state.head.size() + (state.payload > 0 ? state.payload + frame::trailer_bytes : 0);
  frame::write(header, state.head.data());
  char* next = state.head.data() + frame::header_bytes;
  for (const auto& spec : specs) next = write(spec, next);
  std::copy(message.body.begin(), message.body.end(), next);

  const auto add = [&](const char* data, uint64_t bytes, at::Tensor owner, size_t index) {
    if (bytes == 0) return;
    state.segments.push_back({data, bytes, static_cast<uint32_t>(index)});
    state.owners.push_back(std::move(owner));
  };
  const auto add_memory = [&](at::Tensor& owner, uint64_t bytes, size_t index) {
    const char* data = bytes > 0 ? compat::const_data(owner) : nullptr;  // Before it is moved.
    add(data, bytes, std::move(owner), index);
  };
  state.owners.reserve(specs.size());
  auto handle = state.handles.begin();
  for (size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].lent) {
      add((handle++)->data(), Handle::bytes, {}, i);
    } else {
      auto& [indices, values] = sources[i];
      add_memory(indices, specs[i].index_bytes, i);
      add_memory(values.defined() ? values : message.tensors[i], specs[i].value_bytes, i);
    }
  }
  message = {};
  return {};
} catch (...) {  // libtorch, while it copied
  return {base::Code::Invalid, "[wire] message kind " + std::to_string(message.kind) +
                                   " cannot be sent: " + base::status_of(std::current_exception()).message()};
}

base::Status Outgoing::check(const Message& message, const Limits& limits, uint64_t& frame_bytes) {
  frame::Header header;
  Specs specs;
  if (auto status = describe_all(message, limits, specs, header); !status.ok()) return status;
  frame_bytes = frame::header_bytes + header.table_bytes + header.body_bytes +
                (header.payload_bytes > 0 ? header.payload_bytes + frame::trailer_bytes : 0);
  return {};
}

int Outgoing::gather(iovec* slots, int count) const {
  const auto& s = state_;
  int used = 0;
  const auto add = [&](const char* data, uint64_t bytes) { slots[used++] = {const_cast<char*>(data), bytes}; };

  if (s.written < s.head.size() && used < count) add(s.head.data() + s.written, s.head.size() - s.written);
  uint64_t skip = s.segment_written;
  for (size_t i = s.segment; i < s.segments.size() && used < count; ++i, skip = 0) {
    const auto& segment = s.segments[i];
    if (segment.watch >= 0 && memory_moved(s.watches[segment.watch])) {
      add(filler.data(), std::min<uint64_t>(segment.bytes - skip, filler.size()));
      if (segment.bytes - skip > filler.size()) return used;
    } else {
      add(segment.data + skip, segment.bytes - skip);
    }
  }
  // Once held, the trailer waits for the verdict; before, nobody had time to change anything.
  const bool decided = !s.held || s.written >= payload_end();
  if (s.payload > 0 && decided && used < count) {
    const auto trailer = s.verdict.ok() ? frame::Trailer::Good : frame::Trailer::TakenBack;
    const uint64_t begun = s.written > payload_end() ? s.written - payload_end() : 0;
    if (begun < frame::trailer_bytes) add(frame::bytes_of(trailer) + begun, frame::trailer_bytes - begun);
  }
  return used;
}

void Outgoing::advance(uint64_t n) {
  auto& s = state_;
  const uint64_t before = std::max<uint64_t>(s.written, s.head.size());
  s.written += n;
  if (s.payload == 0 || s.segments.empty() || s.written <= before) return;

  uint64_t data = std::min(s.written, payload_end()) - before;
  while (data > 0) {
    const uint64_t left = s.segments[s.segment].bytes - s.segment_written;
    const uint64_t step = std::min(left, data);
    data -= step;
    s.segment_written += step;
    if (step == left) {
      ++s.segment;
      s.segment_written = 0;
    }
  }
  if (s.written < payload_end()) return;
  take_verdict();
  s.watches.clear();
  s.segments.clear();
  s.owners.clear();  // The memory is free for others from here on.
  s.segment = 0;
}

void Outgoing::hold() {
  auto& s = state_;
  s.held = true;
  for (size_t i = s.segment; i < s.segments.size(); ++i) {
    auto& segment = s.segments[i];
    auto& owner = s.owners[i];
    if (!owner.defined() || may_hand_over(owner)) continue;  // A handle, or nobody else can change it.
    if (s.forgotten || owner.is_inference() || compat::is_copy_on_write(owner.storage())) {
      // It may be changed rightly, or there is no counter that would tell of a change.
      owner = snapshot(owner);
      segment.data = compat::const_data(owner);
      continue;
    }
    segment.watch = static_cast<int32_t>(s.watches.size());
    s.watches.push_back({owner, owner.storage(), compat::const_data(owner.storage()),
                         owner.unsafeGetTensorImpl()->version_counter().current_version(), segment.tensor});
  }
}

bool Outgoing::memory_moved(const Watch& watch) const { return compat::const_data(watch.storage) != watch.data; }

Message Outgoing::stub() const {
  const auto& head = state_.head;
  return {state_.kind, state_.tag, Bytes(head.end() - state_.body_bytes, head.end()), {}};
}

void Outgoing::take_verdict() {
  for (const auto& watch : state_.watches) {
    const auto now = watch.tensor.unsafeGetTensorImpl()->version_counter().current_version();
    if (now == watch.version && !memory_moved(watch)) continue;
    state_.verdict = {base::Code::Invalid,
                      tensor_of(watch.index, state_.kind) + " was changed while being sent (version " +
                          std::to_string(watch.version) + ", now " + std::to_string(now) +
                          (memory_moved(watch) ? ", resized" : "") +
                          "): wait for the send to end before changing it in place, or send a clone()"};
    return;
  }
}

}  // namespace farad::wire
