#pragma once

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace farad::acer {

/// A file that TensorBoard reads: records of a length, its checksum, an event, and its checksum; an event is a message
/// in the encoding of protocol buffers, of which only what scalars need is written here.
class EventFile {
 public:
  /// Makes "events.out.tfevents.<seconds>.<host>" in the directory. Those of a run that was there before are removed
  /// or, where this one goes on after so many steps, stay but for what they have of later steps: that TensorBoard then
  /// forgets. Throws Error if it cannot.
  explicit EventFile(const std::string& directory, std::optional<int64_t> after = {});

  /// Scalars of one step. Those that are not a number are left out. Each call is there at once.
  void write(int64_t step, const std::vector<std::pair<std::string, double>>& scalars);

 private:
  void record(const std::string& event);

  std::string path_;
  std::ofstream out_;
};

/// CRC-32C, and in the form in which it stands beside what it is of.
uint32_t crc32c(std::string_view bytes);
uint32_t masked(uint32_t crc);

}  // namespace farad::acer
