#pragma once

#include <string>
#include <utility>

namespace farad::net {

/// What the members of a group know and nobody else does. Never printed, never sent, wiped at the end of its life.
class Secret {
 public:
  Secret() = default;
  explicit Secret(std::string bytes) : bytes_(std::move(bytes)) {}
  Secret(const Secret&) = default;
  Secret(Secret&&) = default;
  /// By value, so that what was held before is wiped with `other`.
  Secret& operator=(Secret other) noexcept {
    bytes_.swap(other.bytes_);
    return *this;
  }
  ~Secret();

  bool empty() const { return bytes_.empty(); }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

}  // namespace farad::net
