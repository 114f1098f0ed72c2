#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "rpc/interceptor.h"

namespace farad::autograd {

/// What was called, for messages: every node and every entry of a recording has one. Most are names of functions, which
/// last as long as the program and are not copied; others are copied once, and shared.
class CallName {
 public:
  CallName() = default;
  template <size_t size>
  CallName(const char (&literal)[size]) : text_(literal, size - 1) {}
  explicit CallName(const rpc::Callee& callee) {
    if (callee.known) {
      text_ = callee.known->name;
    } else {
      own_ = std::make_shared<const std::string>(callee.name);
      text_ = *own_;
    }
  }

  std::string text() const { return std::string(text_); }

 private:
  std::string_view text_;
  std::shared_ptr<const std::string> own_;  // what text_ refers to, unless that lasts
};

}  // namespace farad::autograd
