#include "process/fabric/footprint.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace farad::test {
namespace {

/// Those with `part` in their name.
size_t entries(const std::string& directory, const std::string& part = "") {
  std::error_code none;
  size_t count = 0;
  for (auto it = std::filesystem::directory_iterator(directory, none); it != std::filesystem::directory_iterator();
       it.increment(none)) {
    count += it->path().filename().string().find(part) != std::string::npos;
  }
  return count;
}

}  // namespace

Footprint Footprint::now() {
  Footprint footprint;
  footprint.descriptors = entries("/proc/self/fd");
  footprint.threads = entries("/proc/self/task");
  footprint.shm_files = entries("/dev/shm", "farad");
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    footprint.shared_mappings +=
        line.find("/memfd:") != std::string::npos || line.find("/dev/shm/") != std::string::npos;
  }
  return footprint;
}

std::ostream& operator<<(std::ostream& out, const Footprint& footprint) {
  return out << footprint.descriptors << " descriptors, " << footprint.threads << " threads, "
             << footprint.shared_mappings << " shared mappings, " << footprint.shm_files << " files in /dev/shm";
}

size_t resident_bytes(pid_t process) {
  std::ifstream statm("/proc/" + std::to_string(process) + "/statm");
  size_t all = 0, resident = 0;
  statm >> all >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace farad::test
