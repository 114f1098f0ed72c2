#include <gnu/libc-version.h>
#include <sys/utsname.h>

#include "doctor/checks.h"

namespace farad::doctor {
namespace {

std::string compiler() {
#if defined(__clang__)
  return "clang " __clang_version__;
#else
  return "g++ " __VERSION__;
#endif
}

Finding kernel() {
  utsname about{};
  ::uname(&about);
  return {"versions", "kernel", std::string(about.sysname) + ' ' + about.release + ' ' + about.machine};
}

}  // namespace

Findings check_versions() {
  return {{"versions", "farad", FARAD_VERSION},
          {"versions", "compiler", compiler()},
          kernel(),
          {"versions", "glibc", ::gnu_get_libc_version()}};
}

}  // namespace farad::doctor
