#pragma once

namespace farad::shared {

/// Tells whether this is still the process that set it, and not one that was forked off. By a load, where getpid() is a
/// call of the kernel: what is asked before each update must not cost what a part of an update does.
class ForkMark {
 public:
  /// Throws Error if the kernel has no page for it.
  ForkMark();
  ~ForkMark();
  ForkMark(const ForkMark&) = delete;

  void set() { *page_ = true; }
  bool is_set() const { return *page_; }

 private:
  bool* page_;  // on one that the kernel empties in a child
};

}  // namespace farad::shared
