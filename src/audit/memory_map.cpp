#include "audit/memory_map.h"

#include <fstream>
#include <sstream>
#include <string>

namespace farad::audit {

File file_behind(const void* address) {
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    // 7f00a000-7f00b000 rw-s 00000000 00:01 1234  /memfd:name
    std::istringstream fields(line);
    uint64_t begin = 0, end = 0, offset = 0, major = 0, minor = 0, inode = 0;
    char dash = 0, colon = 0;
    std::string permissions;
    fields >> std::hex >> begin >> dash >> end >> permissions >> offset >> major >> colon >> minor >> std::dec >> inode;
    if (fields && begin <= wanted && wanted < end) return {major << 32 | minor, inode};
  }
  return {};
}

}  // namespace farad::audit
