#pragma once

#include <ATen/core/TensorBody.h>

#include <cstdint>
#include <map>
#include <string>

#include "base/status.h"

/// Files of named tensors in the format of https://github.com/huggingface/safetensors: the length of a header, the
/// header, which is JSON, and the tensors' bytes one after the other. Nothing in such a file is ever run.
namespace farad::optim {

using NamedTensors = std::map<std::string, at::Tensor>;

/// What a file is recognised by.
struct FileMark {
  uint64_t size = 0;
  std::string sha256;  ///< of all of it, in hexadecimal
  bool operator==(const FileMark&) const = default;
};

/// Writes a new file and waits until the disk has it. Tensors are dense, of a type that the format has.
base::Status write_tensors(const std::string& path, const NamedTensors& tensors, FileMark& mark);

/// Reads a file, which may be anything: it is taken only if it has that mark, and nothing is allocated that its size
/// does not account for.
base::Status read_tensors(const std::string& path, const FileMark& mark, NamedTensors& tensors);
/// The same of a file of which nothing is known.
base::Status read_tensors(const std::string& path, NamedTensors& tensors);

/// The tensors in the bytes of such a file, which may be anything; `path` is for what it says of them.
base::Status take_apart(const std::string& path, const at::Tensor& bytes, NamedTensors& tensors);

/// Writes a text and waits until the disk has it.
base::Status write_text(const std::string& path, const std::string& text);
/// Of at most `limit` bytes.
base::Status read_text(const std::string& path, size_t limit, std::string& text);
std::string sha256_of(const std::string& text);

}  // namespace farad::optim
