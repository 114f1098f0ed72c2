#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <type_traits>

namespace farad::test {

/// Where the processes of a test come from. A process with threads must not fork, and loading libtorch anew takes half
/// a second; so one process is forked before there are threads, does nothing but fork, and ends with the test.
class Nursery {
 public:
  /// A process that does `Life(plan)`, which ends the process. A plan is plain bytes, because it travels through a
  /// socket; where it points to it would find nothing.
  template <auto Life, class Plan>
  static pid_t bear(const Plan& plan) {
    static_assert(std::is_trivially_copyable_v<Plan> && sizeof(Plan) <= sizeof(Bytes));
    Bytes bytes{};
    std::memcpy(bytes.data(), &plan, sizeof plan);
    return bear(bytes, [](const Bytes& here) {
      Plan copy;
      std::memcpy(&copy, here.data(), sizeof copy);
      Life(copy);
    });
  }
  /// Waits for the end of one; as waitpid's status.
  static int bury(pid_t child);
  /// kill -9, and waits for the end.
  static void kill(pid_t child);

 private:
  friend struct NurseryRequest;
  using Bytes = std::array<std::byte, 256>;
  using Birth = void (*)(const Bytes&);  // The nursery is a fork of the test, so it has the same functions.

  static pid_t bear(const Bytes& plan, Birth birth);
};

}  // namespace farad::test
