#include "base/log.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <ctime>
#include <utility>

namespace farad::base {
namespace {

const char* name_of(Level level) {
  switch (level) {
    case Level::Off:
      return "off";
    case Level::Error:
      return "error";
    case Level::Warning:
      return "warning";
    case Level::Info:
      return "info";
    case Level::Debug:
      return "debug";
  }
  return "?";
}

std::string time_of_day() {
  using namespace std::chrono;
  const auto now = system_clock::now();
  const std::time_t seconds = system_clock::to_time_t(now);
  std::tm local{};
  localtime_r(&seconds, &local);
  const auto ms = duration_cast<milliseconds>(now.time_since_epoch()).count() % 1000;
  char text[32];
  std::snprintf(text, sizeof text, "%02d:%02d:%02d.%03d", local.tm_hour, local.tm_min, local.tm_sec,
                static_cast<int>(ms));
  return text;
}

void append_printable(std::string& line, std::string_view message) {
  for (const char c : message) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7f) {
      line += c;
      continue;
    }
    char escape[8];
    std::snprintf(escape, sizeof escape, "\\x%02x", byte);
    line += escape;
  }
}

void write_to_stderr(std::string_view line) {
  // A log that cannot be written is lost: there is nobody left to tell.
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace

Level log_level(const Environment& environment) {
  const auto word = environment.text(Var::Log);
  for (const auto level : {Level::Off, Level::Error, Level::Warning, Level::Info, Level::Debug}) {
    if (word == name_of(level)) return level;
  }
  return Level::Warning;
}

Log::Log(std::string worker, Level level, Write write)
    : worker_(std::move(worker)), level_(level), write_(write ? std::move(write) : write_to_stderr) {}

void Log::write(Level level, std::string_view message) const {
  if (!shows(level)) return;
  std::string line = "farad " + time_of_day() + ' ';
  append_printable(line, worker_);
  line += ' ';
  line += name_of(level);
  line += ": ";
  append_printable(line, message);
  line += '\n';
  write_(line);
}

}  // namespace farad::base
