#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace farad::acer {

/// A file that TensorBoard reads: records of a length, its checksum, an event, and its checksum; an event is a message
/// in the encoding of protocol buffers, of which only what scalars need is written here.
class EventFile {
 public:
  /// Makes "events.out.tfevents.<seconds>.<host>" in the directory. Throws Error if it cannot.
  explicit EventFile(const std::string& directory);

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
