#include "beside.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace farad {

int become(const std::string& program, const std::vector<std::string>& arguments) {
  std::vector<char*> argv{const_cast<char*>(program.c_str())};
  for (const auto& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  std::error_code unknown;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", unknown);
  if (!unknown) ::execv((self.parent_path() / program).c_str(), argv.data());
  ::execvp(program.c_str(), argv.data());
  std::fprintf(stderr, "farad: %s cannot be run: %s; it belongs beside the farad command\n", program.c_str(),
               std::strerror(errno));
  return 127;
}

}  // namespace farad
