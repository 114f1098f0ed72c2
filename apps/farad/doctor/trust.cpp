#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

#include "doctor/checks.h"

namespace farad::doctor {
namespace {

constexpr const char* section = "trust";
constexpr size_t short_secret = 16;

Finding check_file(const std::string& path) {
  struct stat about{};
  if (::stat(path.c_str(), &about) != 0 || ::access(path.c_str(), R_OK) != 0) {
    return {section, "secret", "FARAD_SECRET_FILE " + path + ": " + std::strerror(errno), Verdict::Broken,
            "make the file (head -c 32 /dev/urandom | base64) or unset FARAD_SECRET_FILE"};
  }
  std::ifstream file(path, std::ios::binary);
  if (std::all_of(std::istreambuf_iterator<char>(file), {}, [](char c) { return c == '\n' || c == '\r'; })) {
    return {section, "secret", "FARAD_SECRET_FILE " + path + " is empty", Verdict::Broken,
            "fill it: head -c 32 /dev/urandom | base64"};
  }
  if ((about.st_mode & 077) != 0) {
    return {section, "secret", "FARAD_SECRET_FILE " + path + " is open to others, and workers refuse it",
            Verdict::Broken, "chmod 600 " + path};
  }
  return {section, "secret", "from " + path};
}

}  // namespace

Findings check_trust(const base::Environment& environment) {
  using base::Var;
  if (const auto secret = environment.text(Var::Secret)) {
    if (secret->size() < short_secret) {
      return {{section, "secret", "FARAD_SECRET is short", Verdict::Warning,
               "whoever guesses it may join; take 32 random bytes: head -c 32 /dev/urandom | base64"}};
    }
    return {{section, "secret", "from FARAD_SECRET"}};
  }
  if (const auto path = environment.text(Var::SecretFile)) return {check_file(*path)};
  return {{section, "secret",
           "none: farad run makes one for each job; workers started otherwise talk within this machine only"}};
}

}  // namespace farad::doctor
