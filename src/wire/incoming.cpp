#include "wire/incoming.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <string>
#include <utility>

#include "wire/bytes.h"

namespace farad::wire {
namespace {

// Values are taken in through memory that grows with what has arrived: a length alone costs its sender nothing.
constexpr size_t first_step = 64 << 10;

}  // namespace

Incoming::Incoming(const Limits& limits, std::shared_ptr<BufferPool> pool)
    : limits_(limits), pool_(std::move(pool)), next_(fixed_.data()), left_(fixed_.size()) {}

base::Status Incoming::filled(size_t n) {
  if (stage_ == Stage::Failed) return failure_;
  next_ += n;
  left_ -= n;
  if (left_ > 0 || stage_ == Stage::Complete) return {};
  try {
    return part_is_whole();
  } catch (...) {  // the allocators
    return refuse(base::status_of(std::current_exception()).message());
  }
}

base::Status Incoming::feed(std::span<const char> bytes, size_t& consumed) {
  consumed = 0;
  while (!complete() && consumed < bytes.size()) {
    const size_t n = std::min(left_, bytes.size() - consumed);
    if (n > 0) std::memcpy(next_, bytes.data() + consumed, n);
    if (auto status = filled(n); !status.ok()) return status;
    consumed += n;
  }
  return {};
}

Message Incoming::take() {
  Message message = std::move(message_);
  message_ = {};
  torn_ = false;
  stage_ = Stage::Header;
  next_ = fixed_.data();
  left_ = fixed_.size();
  return message;
}

base::Status Incoming::part_is_whole() {
  switch (stage_) {
    case Stage::Header:
      return begin_table();
    case Stage::Table:
      return begin_body();
    case Stage::Body:
      return grow_body();
    case Stage::Payload:
      return next_tensor();
    case Stage::Trailer:
      return finish();
    case Stage::Complete:
    case Stage::Failed:
      break;
  }
  return failure_;
}

base::Status Incoming::begin_table() {
  if (auto status = frame::read(fixed_.data(), limits_, header_); !status.ok()) {
    return fail(std::move(status));
  }
  message_.kind = header_.kind;
  message_.tag = header_.tag;
  specs_.clear();
  memory_.clear();
  if (header_.table_bytes == 0) return begin_body();
  table_.resize_for_overwrite(header_.table_bytes);
  return wait_for(Stage::Table, table_.data(), table_.size());
}

base::Status Incoming::begin_body() {
  std::string_view rest(table_.data(), header_.table_bytes);
  uint64_t payload = 0;
  while (!rest.empty()) {
    if (specs_.size() == limits_.tensors) return refuse("more than " + std::to_string(limits_.tensors) + " tensors");
    auto& spec = specs_.emplace_back();
    if (auto complaint = read(rest, limits_, spec)) return refuse_tensor(specs_.size() - 1, *complaint);
    // Compared this way round because the sum of what is claimed may not fit.
    if (spec.payload_bytes() > header_.payload_bytes - payload) {
      return refuse_tensor(specs_.size() - 1, "has more data than the frame");
    }
    payload += spec.payload_bytes();
  }
  if (payload != header_.payload_bytes) {
    return refuse(std::to_string(header_.payload_bytes) + " bytes of tensor data, but its tensors have " +
                  std::to_string(payload));
  }
  return header_.body_bytes > 0 ? grow_body() : begin_payload();
}

base::Status Incoming::grow_body() {
  const size_t have = message_.body.size();
  if (have == header_.body_bytes) return begin_payload();
  const size_t step = std::min(std::max(first_step, have), header_.body_bytes - have);
  message_.body.resize(have + step);
  return wait_for(Stage::Body, message_.body.data() + have, step);
}

base::Status Incoming::begin_payload() {
  memory_.reserve(specs_.size());
  return header_.payload_bytes > 0 ? next_tensor() : finish();
}

base::Status Incoming::borrow() {
  const char* from = fixed_.data();
  Handle handle;
  handle.block = wire::take<uint64_t>(from);
  handle.meaning = wire::take<uint64_t>(from);
  const size_t index = memory_.size() - 1;
  if (!borrower_) return refuse_tensor(index, "is lent, on a connection without shared memory");
  auto status = borrower_->borrow(handle, specs_[index].value_bytes, memory_[index].values);
  if (status.ok()) return status;
  if (status.code() != base::Code::Protocol) return fail(std::move(status));  // They did nothing wrong.
  return refuse_tensor(index, "cannot be borrowed: " + status.message());
}

base::Status Incoming::next_tensor() {
  if (std::exchange(reading_handle_, false)) {
    if (auto status = borrow(); !status.ok()) return status;
  }
  if (reading_indices_) {
    reading_indices_ = false;
    const auto& spec = specs_[memory_.size() - 1];
    if (spec.value_bytes > 0) {
      return wait_for(Stage::Payload, static_cast<char*>(memory_.back().values.get()), spec.value_bytes);
    }
  }
  while (memory_.size() < specs_.size()) {
    const auto& spec = specs_[memory_.size()];
    auto& memory = memory_.emplace_back();
    if (spec.lent) {
      reading_handle_ = true;
      return wait_for(Stage::Payload, fixed_.data(), Handle::bytes);
    }
    memory = {pool_->allocate(spec.index_bytes), pool_->allocate(spec.value_bytes)};
    if (spec.payload_bytes() == 0) continue;
    reading_indices_ = spec.index_bytes > 0;
    const auto& first = reading_indices_ ? memory.indices : memory.values;
    return wait_for(Stage::Payload, static_cast<char*>(first.get()),
                    reading_indices_ ? spec.index_bytes : spec.value_bytes);
  }
  return begin_trailer();
}

base::Status Incoming::begin_trailer() { return wait_for(Stage::Trailer, fixed_.data(), frame::trailer_bytes); }

base::Status Incoming::finish() {
  if (header_.payload_bytes > 0) {
    auto trailer = frame::Trailer::Good;
    if (auto status = frame::read(fixed_.data(), trailer); !status.ok()) return fail(std::move(status));
    torn_ = trailer == frame::Trailer::TakenBack;
  }
  // What was taken back may be half old, half new: it is not even looked at.
  if (!torn_) {
    memory_.resize(specs_.size());
    message_.tensors.resize(specs_.size());
    for (size_t i = 0; i < specs_.size(); ++i) {
      auto& [indices, values] = memory_[i];
      if (auto complaint = build(specs_[i], std::move(indices), std::move(values), message_.tensors[i])) {
        return refuse_tensor(i, *complaint);
      }
      if (specs_[i].device.is_cpu()) continue;
      message_.devices.resize(specs_.size(), c10::kCPU);
      message_.devices[i] = specs_[i].device;
    }
  }
  memory_.clear();
  stage_ = Stage::Complete;
  return {};
}

base::Status Incoming::wait_for(Stage stage, char* data, size_t bytes) {
  stage_ = stage;
  next_ = data;
  left_ = bytes;
  return {};
}

base::Status Incoming::fail(base::Status why) {
  stage_ = Stage::Failed;
  next_ = nullptr;
  left_ = 0;
  memory_.clear();
  message_ = {};
  return failure_ = std::move(why);
}

base::Status Incoming::refuse(const std::string& why) {
  return fail({base::Code::Protocol, "[wire] refused a frame of kind " + std::to_string(header_.kind) + ": " + why});
}

base::Status Incoming::refuse_tensor(size_t index, const std::string& complaint) {
  return refuse("tensor " + std::to_string(index) + " " + complaint);
}

}  // namespace farad::wire
