#pragma once

namespace farad::shared {

/// While one lives, whoever wants to fork this process waits: so a child finds what is changed meanwhile as it was
/// before, or as it is after. For short changes that wait for nothing, by threads that do not fork themselves.
class NoFork {
 public:
  NoFork();
  ~NoFork();
  NoFork(const NoFork&) = delete;
};

}  // namespace farad::shared
