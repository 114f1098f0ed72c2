#include "net/machine.h"

#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "shm/fd.h"

namespace farad::net {

std::string machine_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat space{};
  if (boot.empty() || ::stat("/proc/self/ns/net", &space) != 0) {
    // Nothing to go by, so like nobody else: such workers talk by tcp.
    boot = "unknown-" + std::to_string(new_birth());
  }
  return boot + "/" + std::to_string(space.st_ino) + "/" + std::to_string(::geteuid());
}

uint64_t new_birth() {
  uint64_t number = 0;
  while (number == 0) {
    if (::getrandom(&number, sizeof(number), 0) != sizeof(number)) shm::system_error("getrandom").raise();
  }
  return number;
}

}  // namespace farad::net
