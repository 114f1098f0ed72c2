#pragma once

#include <cstdint>
#include <functional>
#include <sstream>
#include <string>
#include <string_view>

#include "base/environment.h"

namespace farad::base {

enum class Level : uint8_t { Off, Error, Warning, Info, Debug };

/// FARAD_LOG as a Level; a malformed value counts as its default, for a log is no place to fail.
Level log_level(const Environment&);

/// What a worker has to say that nobody waits for: "farad 12:34:56.789 worker3 warning: [tcp] dropped ...".
///
/// A line is written in one piece, so that those of several processes do not mix. What comes from outside may stand in
/// a message: control characters are written as \xNN, so that nobody can make up a line. Any thread; copies are cheap
/// enough to keep one per service.
class Log {
 public:
  using Write = std::function<void(std::string_view line)>;

  /// To standard error unless told otherwise.
  Log(std::string worker, Level level, Write write = {});

  bool shows(Level level) const { return level <= level_; }
  void write(Level level, std::string_view message) const;

  template <class... Parts>
  void error(const Parts&... parts) const {
    join(Level::Error, parts...);
  }
  template <class... Parts>
  void warning(const Parts&... parts) const {
    join(Level::Warning, parts...);
  }
  template <class... Parts>
  void info(const Parts&... parts) const {
    join(Level::Info, parts...);
  }
  template <class... Parts>
  void debug(const Parts&... parts) const {
    join(Level::Debug, parts...);
  }

 private:
  template <class... Parts>
  void join(Level level, const Parts&... parts) const {
    if (!shows(level)) return;
    std::ostringstream message;
    (message << ... << parts);
    write(level, message.str());
  }

  std::string worker_;
  Level level_;
  Write write_;
};

}  // namespace farad::base
