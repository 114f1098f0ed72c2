#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace farad::demo {

/// The whole of a file; nothing if there is none.
std::optional<std::string> read_file(const std::string& path);
/// Written aside and renamed: whoever looks sees the old one or the new one.
void write_file(const std::string& path, const std::string& text);

/// Where the checkpoints of one run lie: a directory for each, named after the steps it comes after.
class Checkpoints {
 public:
  explicit Checkpoints(std::string directory) : directory_(std::move(directory)) {}

  struct Checkpoint {
    int64_t steps;
    std::string path;
  };
  /// The last whole one.
  std::optional<Checkpoint> last() const;
  /// `write` gets the directory it is to make and fill; when it has, older ones go.
  void save(int64_t steps, const std::function<void(const std::string&)>& write) const;
  /// For a run that begins anew.
  void clear() const;

 private:
  std::string path_of(int64_t steps) const { return directory_ + "/step" + std::to_string(steps); }
  void remove(int64_t steps) const;
  /// How many steps each comes after, whole or not.
  std::vector<int64_t> all() const;

  const std::string directory_;
};

}  // namespace farad::demo
