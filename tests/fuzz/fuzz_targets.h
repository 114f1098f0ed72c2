#pragma once

#include <cstdint>
#include <span>

/// What the fuzzers throw bytes at. Each must come back from any input, without a complaint of a sanitizer and without
/// an exception; it aborts where something was accepted that should not have been. libFuzzer runs them one by one,
/// the unit tests run all of them on every input that is kept.
namespace farad::fuzz {

using Input = std::span<const uint8_t>;

/// A byte stream from a peer: frames, one after the other.
void fuzz_frame(Input input);
/// The table and the payload of one frame, under a header that fits: gets past the first checks.
void fuzz_tensor(Input input);
/// The body of a message, read as values of every type that travels.
void fuzz_value(Input input);
/// The arguments of a call by name.
void fuzz_ivalue(Input input);
/// A file of tensors, as checkpoints have them.
void fuzz_safetensors(Input input);

}  // namespace farad::fuzz
