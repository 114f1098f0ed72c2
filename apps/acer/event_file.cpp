#include "acer/event_file.h"

#include <farad/error.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <filesystem>

namespace farad::acer {

namespace fs = std::filesystem;

namespace {

// The fields that are used of tensorflow's Event, Summary and SessionLog messages.
enum Field { wall_time = 1, step_number = 2, file_version = 3, summary = 5, session_log = 7 };
enum SummaryField { summary_value = 1 };
enum ValueField { tag = 1, simple_value = 2 };
enum SessionField { status = 1 };
constexpr uint64_t session_start = 1;
enum class Wire : uint64_t { Varint = 0, Fixed64 = 1, Bytes = 2, Fixed32 = 5 };

void put_varint(std::string& to, uint64_t value) {
  for (; value >= 0x80; value >>= 7) to += static_cast<char>(value | 0x80);
  to += static_cast<char>(value);
}

void put_key(std::string& to, int field, Wire wire) {
  put_varint(to, static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(wire));
}

template <class Unsigned>
void put_fixed(std::string& to, Unsigned value) {
  for (size_t i = 0; i < sizeof value; ++i) to += static_cast<char>(value >> (8 * i));
}

void put_bytes(std::string& to, int field, std::string_view bytes) {
  put_key(to, field, Wire::Bytes);
  put_varint(to, bytes.size());
  to += bytes;
}

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

std::string event_at(double time) {
  std::string event;
  put_key(event, wall_time, Wire::Fixed64);
  put_fixed(event, std::bit_cast<uint64_t>(time));
  return event;
}

std::string event_of_step(double time, int64_t step) {
  auto event = event_at(time);
  put_key(event, step_number, Wire::Varint);
  put_varint(event, static_cast<uint64_t>(step));
  return event;
}

constexpr char first_of_name[] = "events.out.tfevents.";

void remove_event_files(const std::string& directory) {
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (entry.path().filename().string().starts_with(first_of_name)) fs::remove(entry.path());
  }
}

/// One that no file has yet. TensorBoard reads files in the order of their names.
std::string new_path(const std::string& directory) {
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  for (auto seconds = static_cast<int64_t>(now());; ++seconds) {
    const auto path = directory + "/" + first_of_name + std::to_string(seconds) + "." + host;
    if (!fs::exists(path)) return path;
  }
}

constexpr std::array<uint32_t, 256> crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
    table[i] = crc;
  }
  return table;
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static constexpr auto table = crc_table();
  uint32_t crc = 0xffffffff;
  for (const char byte : bytes) crc = crc >> 8 ^ table[(crc ^ static_cast<uint8_t>(byte)) & 0xff];
  return ~crc;
}

uint32_t masked(uint32_t crc) { return std::rotr(crc, 15) + 0xa282ead8; }

EventFile::EventFile(const std::string& directory, std::optional<int64_t> after) {
  if (!after) remove_event_files(directory);
  path_ = new_path(directory);
  out_.open(path_, std::ios::binary);
  auto event = event_at(now());
  put_bytes(event, file_version, "brain.Event:2");
  record(event);
  if (!after) return;
  std::string session;
  put_key(session, status, Wire::Varint);
  put_varint(session, session_start);
  auto begun = event_of_step(now(), *after + 1);  // What there is of this step and of later ones does not count.
  put_bytes(begun, session_log, session);
  record(begun);
}

void EventFile::write(int64_t step, const std::vector<std::pair<std::string, double>>& scalars) {
  std::string values;
  for (const auto& [name, number] : scalars) {
    if (std::isnan(number)) continue;
    std::string value;
    put_bytes(value, tag, name);
    put_key(value, simple_value, Wire::Fixed32);
    put_fixed(value, std::bit_cast<uint32_t>(static_cast<float>(number)));
    put_bytes(values, summary_value, value);
  }
  auto event = event_of_step(now(), step);
  put_bytes(event, summary, values);
  record(event);
}

void EventFile::record(const std::string& event) {
  std::string length;
  put_fixed(length, static_cast<uint64_t>(event.size()));
  std::string bytes = length;
  put_fixed(bytes, masked(crc32c(length)));
  bytes += event;
  put_fixed(bytes, masked(crc32c(event)));
  out_ << bytes;
  if (!out_.flush()) throw Error("[acer] cannot write " + path_);
}

}  // namespace farad::acer
