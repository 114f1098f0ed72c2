#include "optim/safetensors.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/fd.h"

namespace farad::optim {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian, and so are we");

using base::Code;
using base::Status;
using Json = nlohmann::json;

constexpr uint64_t most_header = 100'000'000;  // as the library of the format has it

struct TypeName {
  at::ScalarType type;
  const char* name;
};
constexpr TypeName type_names[] = {
    {at::kBool, "BOOL"}, {at::kByte, "U8"},  {at::kChar, "I8"},       {at::kShort, "I16"}, {at::kInt, "I32"},
    {at::kLong, "I64"},  {at::kHalf, "F16"}, {at::kBFloat16, "BF16"}, {at::kFloat, "F32"}, {at::kDouble, "F64"}};

const char* name_of(at::ScalarType type) {
  for (const auto& known : type_names) {
    if (known.type == type) return known.name;
  }
  return nullptr;
}
std::optional<at::ScalarType> type_of(const std::string& name) {
  for (const auto& known : type_names) {
    if (known.name == name) return known.type;
  }
  return {};
}

Status refused(const std::string& path, const std::string& what) {
  return {Code::Invalid, "[optim] " + path + ": " + what};
}
Status failed_by_system(const std::string& path, const char* doing) {
  return refused(path, std::string(doing) + ": " + std::strerror(errno));
}

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), &EVP_MD_CTX_free) { EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr); }
  void add(const void* data, size_t size) { EVP_DigestUpdate(context_.get(), data, size); }
  std::string text() {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    EVP_DigestFinal_ex(context_.get(), digest, &size);
    constexpr char digits[] = "0123456789abcdef";
    std::string text;
    for (unsigned i = 0; i < size; i++) text += {digits[digest[i] >> 4], digits[digest[i] & 15]};
    return text;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

/// A file that is being written, and its mark so far.
class Output {
 public:
  explicit Output(const std::string& path)
      : path_(path), fd_(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {}

  Status write(const void* data, size_t size) {
    const auto* next = static_cast<const char*>(data);
    size_ += size;
    while (size > 0) {
      const size_t some = std::min(size, piece);  // What was just hashed is still in a cache when it is written.
      sha256_.add(next, some);
      if (auto status = write_piece(next, some); !status.ok()) return status;
      next += some;
      size -= some;
    }
    return {};
  }
  Status begin() const { return fd_.get() < 0 ? failed_by_system(path_, "open") : Status(); }
  Status end(FileMark& mark) {
    if (fsync(fd_.get()) != 0) return failed_by_system(path_, "fsync");
    mark = {size_, sha256_.text()};
    return {};
  }

 private:
  static constexpr size_t piece = 256 << 10;

  Status write_piece(const char* next, size_t size) const {
    while (size > 0) {
      const auto written = ::write(fd_.get(), next, size);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return failed_by_system(path_, "write");
      next += written;
      size -= static_cast<size_t>(written);
    }
    return {};
  }

  const std::string path_;
  const base::Fd fd_;
  Sha256 sha256_;
  uint64_t size_ = 0;
};

/// All of a file, which is of at most that size.
Status read_file(const std::string& path, uint64_t limit, at::Tensor& bytes) {
  const base::Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) return failed_by_system(path, "open");
  struct stat facts{};
  if (fstat(fd.get(), &facts) != 0) return failed_by_system(path, "stat");
  if (!S_ISREG(facts.st_mode)) return refused(path, "is no file");
  const auto size = static_cast<uint64_t>(facts.st_size);
  if (size > limit) return refused(path, "has " + std::to_string(size) + " bytes, more than " + std::to_string(limit));
  bytes = at::empty({static_cast<int64_t>(size)}, at::kByte);
  uint64_t at = 0;
  while (at < size) {
    const auto got = read(fd.get(), bytes.data_ptr<uint8_t>() + at, size - at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failed_by_system(path, "read");
    if (got == 0) return refused(path, "became shorter while it was read");
    at += static_cast<uint64_t>(got);
  }
  return {};
}

/// JSON in which no name comes twice: of two, who knows which one others would take.
bool parse(std::string_view text, Json& json, std::string& why) {
  std::vector<std::set<std::string>> names;
  const auto watch = [&](int, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start) names.emplace_back();
    if (event == Json::parse_event_t::object_end) names.pop_back();
    if (event == Json::parse_event_t::key && !names.back().insert(value.get<std::string>()).second) {
      why = "its header has \"" + value.get<std::string>() + "\" twice";
    }
    return true;
  };
  try {
    json = Json::parse(text, watch);
  } catch (const Json::exception& error) {
    why = std::string("its header is no JSON: ") + error.what();
  }
  if (why.empty() && !json.is_object()) why = "its header is no object";
  return why.empty();
}

struct Extent {
  at::ScalarType type;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;
};

/// What the header says of one tensor, whose bytes must be among `size`.
bool read_extent(const Json& json, uint64_t size, Extent& extent, std::string& why) {
  const auto fail = [&](const char* what) {
    why = what;
    return false;
  };
  if (!json.is_object() || !json.contains("dtype") || !json.contains("shape") || !json.contains("data_offsets")) {
    return fail("lacks dtype, shape or data_offsets");
  }
  const auto& dtype = json["dtype"];
  const auto type = dtype.is_string() ? type_of(dtype.get<std::string>()) : std::nullopt;
  if (!type) return fail("is of a type that is not known here");
  extent.type = *type;
  if (!json["shape"].is_array() || json["shape"].size() > 64) return fail("has no shape");
  uint64_t bytes = c10::elementSize(*type);
  for (const auto& each : json["shape"]) {
    if (!each.is_number_unsigned()) return fail("has a shape of something else than numbers");
    const auto length = each.get<uint64_t>();
    if (length > INT64_MAX || __builtin_mul_overflow(bytes, length, &bytes)) return fail("is too large to be true");
    extent.shape.push_back(static_cast<int64_t>(length));
  }
  const auto& offsets = json["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
      !offsets[1].is_number_unsigned()) {
    return fail("has no data_offsets");
  }
  extent.begin = offsets[0].get<uint64_t>();
  extent.end = offsets[1].get<uint64_t>();
  if (extent.begin > extent.end || extent.end > size) return fail("lies outside of the file");
  if (extent.end - extent.begin != bytes) return fail("has another size than its shape says");
  return true;
}

at::Tensor tensor_in(const at::Tensor& bytes, uint64_t offset, const Extent& extent) {
  auto* data = bytes.data_ptr<uint8_t>() + offset + extent.begin;
  const auto options = at::TensorOptions().dtype(extent.type);
  if (reinterpret_cast<uintptr_t>(data) % c10::elementSize(extent.type) == 0) {
    return at::from_blob(data, extent.shape, [bytes](void*) {}, options);
  }
  auto copy = at::empty(extent.shape, options);
  std::memcpy(copy.data_ptr(), data, extent.end - extent.begin);
  return copy;
}

}  // namespace

Status write_tensors(const std::string& path, const NamedTensors& tensors, FileMark& mark) {
  Json header = Json::object();
  uint64_t offset = 0;
  std::vector<at::Tensor> contents;
  for (const auto& [name, tensor] : tensors) {
    const char* type = name_of(tensor.scalar_type());
    if (!type || tensor.layout() != at::kStrided) {
      return refused(path, "\"" + name + "\" is of " + tensor.toString() + ", which the format does not have");
    }
    contents.push_back(tensor.detach().cpu().contiguous());
    const uint64_t end = offset + contents.back().nbytes();
    header[name] = {{"dtype", type}, {"shape", tensor.sizes().vec()}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // so that tensors lie where they may be used from
  const uint64_t length = text.size();
  Output file(path);
  if (auto status = file.begin(); !status.ok()) return status;
  if (auto status = file.write(&length, sizeof length); !status.ok()) return status;
  if (auto status = file.write(text.data(), text.size()); !status.ok()) return status;
  for (const auto& each : contents) {
    if (auto status = file.write(each.data_ptr(), each.nbytes()); !status.ok()) return status;
  }
  return file.end(mark);
}

Status read_tensors(const std::string& path, const FileMark& mark, NamedTensors& tensors) {
  at::Tensor bytes;
  if (auto status = read_file(path, mark.size, bytes); !status.ok()) return status;
  const auto size = static_cast<uint64_t>(bytes.numel());
  if (size != mark.size) {
    return refused(path, "has " + std::to_string(size) + " bytes, not " + std::to_string(mark.size) + ": it is torn");
  }
  Sha256 sha256;
  sha256.add(bytes.data_ptr(), size);
  if (sha256.text() != mark.sha256)
    return refused(path, "was changed after it was written: its checksum is another one");
  return take_apart(path, bytes, tensors);
}

Status read_tensors(const std::string& path, NamedTensors& tensors) {
  at::Tensor bytes;
  if (auto status = read_file(path, INT64_MAX, bytes); !status.ok()) return status;
  return take_apart(path, bytes, tensors);
}

Status take_apart(const std::string& path, const at::Tensor& bytes, NamedTensors& tensors) {
  const auto size = static_cast<uint64_t>(bytes.numel());
  const auto* data = bytes.data_ptr<uint8_t>();
  uint64_t header = 0;
  if (size < sizeof header) return refused(path, "is too short to be a safetensors file");
  std::memcpy(&header, data, sizeof header);
  const uint64_t begin = sizeof header + header;
  if (header > most_header || begin > size) {
    return refused(path, "is no safetensors file: its header would have " + std::to_string(header) + " bytes");
  }
  Json json;
  std::string why;
  if (!parse({reinterpret_cast<const char*>(data) + sizeof header, header}, json, why)) return refused(path, why);
  NamedTensors found;
  std::map<uint64_t, uint64_t> extents;
  for (const auto& [name, value] : json.items()) {
    if (name == "__metadata__") continue;
    Extent extent;
    if (!read_extent(value, size - begin, extent, why)) return refused(path, "tensor \"" + name + "\" " + why);
    if (extent.end > extent.begin && !extents.emplace(extent.begin, extent.end).second) {
      return refused(path, "tensor \"" + name + "\" lies where another one does");
    }
    found.emplace(name, tensor_in(bytes, begin, extent));
  }
  uint64_t next = 0;  // Without gaps and overlaps, so that every byte has one meaning.
  for (const auto& [first, last] : extents) {
    if (first != next) return refused(path, "its tensors do not lie one after the other");
    next = last;
  }
  if (next != size - begin) return refused(path, "its tensors do not fill it");
  tensors = std::move(found);
  return {};
}

Status write_text(const std::string& path, const std::string& text) {
  Output file(path);
  FileMark mark;
  if (auto status = file.begin(); !status.ok()) return status;
  if (auto status = file.write(text.data(), text.size()); !status.ok()) return status;
  return file.end(mark);
}

Status read_text(const std::string& path, size_t limit, std::string& text) {
  at::Tensor bytes;
  if (auto status = read_file(path, limit, bytes); !status.ok()) return status;
  text.assign(reinterpret_cast<const char*>(bytes.data_ptr<uint8_t>()), static_cast<size_t>(bytes.numel()));
  return {};
}

std::string sha256_of(const std::string& text) {
  Sha256 sha256;
  sha256.add(text.data(), text.size());
  return sha256.text();
}

}  // namespace farad::optim
