#include "optim/checkpoint.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

namespace farad::optim {
namespace {

using base::Code;
using base::Status;
using Json = nlohmann::json;
namespace fs = std::filesystem;

constexpr const char* manifest_name = "manifest.json";
constexpr const char* aside_name = "manifest.json.new";
constexpr const char* format_name = "farad checkpoint";
constexpr uint64_t format_version = 1;
constexpr size_t most_manifest = 64 << 20;
constexpr const char* suffix = ".safetensors";

Status failed(const std::string& path, const std::string& what) {
  return {Code::Invalid, "[optim] checkpoint " + path + ": " + what};
}

/// "00000012-3.safetensors": of which checkpoint, and which of its files. Nothing else is ever opened or removed.
std::string file_name(uint64_t generation, size_t number) {
  char text[64];
  std::snprintf(text, sizeof text, "%08llu-%zu%s", static_cast<unsigned long long>(generation), number, suffix);
  return text;
}
/// The generation in such a name; nothing if it is another one.
std::optional<uint64_t> generation_in(std::string_view name) {
  uint64_t generation = 0, number = 0;
  const char* const end = name.data() + name.size();
  const auto dash = std::from_chars(name.data(), end, generation);
  if (dash.ec != std::errc() || dash.ptr == end || *dash.ptr != '-') return {};
  const auto rest = std::from_chars(dash.ptr + 1, end, number);
  if (rest.ec != std::errc() || std::string_view(rest.ptr, end) != suffix) return {};
  return generation;
}

Status not_as_it_should_be(const std::string& directory, const Json::exception& error) {
  return failed(directory + "/" + manifest_name, std::string("is not as it should be: ") + error.what());
}

/// The last word of a manifest is a checksum of all others, so that a changed one is not taken.
std::string seal(const Json& manifest) { return sha256_of(manifest.dump()); }

Status read_manifest(const std::string& directory, Json& manifest) {
  const auto path = directory + "/" + manifest_name;
  std::string text;
  if (auto status = read_text(path, most_manifest, text); !status.ok()) return status;
  manifest = Json::parse(text, nullptr, false);
  if (!manifest.is_object() || manifest.value("format", Json()) != format_name) {
    return failed(path, "is not the manifest of a checkpoint");
  }
  if (manifest.value("version", Json()) != format_version) {
    return failed(path, "is of version " + manifest.value("version", Json()).dump() + "; this program reads version " +
                            std::to_string(format_version));
  }
  const Json checksum = manifest.value("checksum", Json());
  manifest.erase("checksum");
  if (checksum != seal(manifest)) return failed(path, "was changed after it was written: its checksum is another one");
  return {};
}

void parse_groups(const Json& manifest, CheckpointFacts& facts) {
  for (const auto& group : manifest.at("groups")) {
    auto& known = facts.groups.emplace_back();
    known.settings.kind = group.at("optimizer").get<std::string>();
    known.settings.options = group.at("options").get<std::map<std::string, double>>();
    known.parameters = group.at("parameters").get<int64_t>();
  }
}

/// "Adam of 3 parameters, SGD of 2 parameters".
std::string described(const CheckpointFacts& facts) {
  std::string text;
  for (const auto& [settings, parameters] : facts.groups) {
    text += (text.empty() ? "" : ", ") + settings.kind + " of " + std::to_string(parameters) + " parameters";
  }
  return text;
}

/// Whether a checkpoint of `facts` may take the place of what is there.
Status check_last(const std::string& directory, const CheckpointFacts& facts) {
  std::error_code error;
  if (!fs::exists(fs::symlink_status(directory + "/" + manifest_name, error))) return {};
  Json manifest;
  if (auto status = read_manifest(directory, manifest); !status.ok()) {
    return {status.code(), status.message() + "; save into another directory, or remove that one"};
  }
  CheckpointFacts last;
  try {
    parse_groups(manifest, last);
  } catch (const Json::exception& error) {
    return not_as_it_should_be(directory, error);
  }
  if (described(last) == described(facts)) return {};
  return failed(directory, "there is one of another training, of " + described(last) + ", not of " + described(facts) +
                               "; save into another directory, or remove that one");
}

Status sync_directory(const std::string& directory) {
  const base::Fd fd(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd || fsync(fd.get()) != 0) return failed(directory, std::string("fsync: ") + std::strerror(errno));
  return {};
}

/// With those that it lies in; what was made is on the disk then.
Status make_directory(const std::string& directory) {
  std::error_code error;
  auto path = fs::absolute(directory, error).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // It ended in a slash.
  std::vector<fs::path> parents;
  for (auto next = path; !fs::exists(next, error) && next.has_relative_path(); next = next.parent_path()) {
    parents.push_back(next.parent_path());
  }
  fs::create_directories(path, error);
  if (error) return failed(directory, "cannot be made: " + error.message());
  for (const auto& parent : parents) {
    if (auto status = sync_directory(parent.string()); !status.ok()) return status;
  }
  return {};
}

}  // namespace

Status CheckpointWriter::begin(const CheckpointFacts& facts) {
  if (auto status = make_directory(directory_); !status.ok()) return status;
  if (auto status = lock(); !status.ok()) return status;
  if (auto status = check_last(directory_, facts); !status.ok()) return status;
  // One that no file here has, whether a manifest names it or a process that was killed has left it.
  generation_ = 1;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory_, error)) {
    const auto used = generation_in(entry.path().filename().string());
    if (used) generation_ = std::max(generation_, *used + 1);
  }
  if (error) return failed(directory_, "cannot be listed: " + error.message());
  return {};
}

Status CheckpointWriter::lock() {
  lock_ = base::Fd(open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!lock_) return failed(directory_, std::string("open: ") + std::strerror(errno));
  // Ends with the process, and with those that it has forked meanwhile, however they end. There are file systems that
  // have no locks, or none of directories.
  if (flock(lock_.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return {};
  lock_.reset();
  return failed(directory_, "another checkpoint is being saved into it right now");
}

Status CheckpointWriter::add(const NamedTensors& tensors) {
  files_.emplace_back(file_name(generation_, files_.size()), FileMark());
  return write_tensors(path(files_.back().first), tensors, files_.back().second);
}

Status CheckpointWriter::finish(const CheckpointFacts& facts) {
  Json manifest{{"format", format_name},
                {"version", format_version},
                {"generation", generation_},
                {"groups", Json::array()},
                {"files", Json::array()}};
  for (const auto& group : facts.groups) {
    manifest["groups"].push_back(
        {{"optimizer", group.settings.kind}, {"options", group.settings.options}, {"parameters", group.parameters}});
  }
  for (const auto& [name, mark] : files_) {
    manifest["files"].push_back({{"name", name}, {"size", mark.size}, {"sha256", mark.sha256}});
  }
  manifest["checksum"] = seal(manifest);
  if (auto status = write_text(path(aside_name), manifest.dump(1) + "\n"); !status.ok()) return status;
  if (auto status = sync_directory(directory_); !status.ok()) return status;  // The files come before their manifest.
  if (std::rename(path(aside_name).c_str(), path(manifest_name).c_str()) != 0) {
    return failed(directory_, std::string("rename: ") + std::strerror(errno));
  }
  finished_ = true;
  if (auto status = sync_directory(directory_); !status.ok()) return status;
  remove_others();
  return {};
}

void CheckpointWriter::remove_others() const {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory_, error)) {
    const auto name = entry.path().filename().string();
    const bool ours = std::any_of(files_.begin(), files_.end(), [&](const auto& file) { return file.first == name; });
    if (!ours && generation_in(name)) fs::remove(entry.path(), error);
  }
}

CheckpointWriter::~CheckpointWriter() {
  if (!finished_ && !files_.empty()) {  // Without files of its own it has not begun.
    std::error_code error;
    for (const auto& [name, mark] : files_) fs::remove(path(name), error);
    fs::remove(path(aside_name), error);
  }
  if (lock_) flock(lock_.get(), LOCK_UN);  // A child that was forked meanwhile has the descriptor still.
}

Status read_checkpoint(const std::string& directory, CheckpointFacts& facts, NamedTensors& tensors) {
  Json manifest;
  if (auto status = read_manifest(directory, manifest); !status.ok()) return status;
  CheckpointFacts found;
  NamedTensors all;
  try {  // A sealed manifest may still be of another program that seals like us.
    parse_groups(manifest, found);
    for (const auto& file : manifest.at("files")) {
      const auto name = file.at("name").get<std::string>();
      if (!generation_in(name))
        return failed(directory, "its manifest names a file \"" + name + "\", which is none of ours");
      NamedTensors some;
      const FileMark mark{file.at("size").get<uint64_t>(), file.at("sha256").get<std::string>()};
      if (auto status = read_tensors(directory + "/" + name, mark, some); !status.ok()) return status;
      const auto count = all.size() + some.size();
      all.merge(some);
      if (all.size() != count) return failed(directory, "two of its files have a tensor of the same name");
    }
  } catch (const Json::exception& error) {
    return not_as_it_should_be(directory, error);
  }
  facts = std::move(found);
  tensors = std::move(all);
  return {};
}

}  // namespace farad::optim
