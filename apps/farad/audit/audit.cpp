#include "audit/audit.h"

#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "audit/table.h"
#include "base/fd.h"

namespace farad::audit {
namespace {

using nlohmann::json;

constexpr int failed = 1;
constexpr int could_not_run = 2;

/// What is audited needs libtorch, which this command is not linked with: so the built-in training is a program too.
std::vector<std::string> builtin_program() {
  return {(std::filesystem::read_symlink("/proc/self/exe").parent_path() / "farad-audit").string()};
}

std::string request(const AuditOptions& options, int descriptor) {
  return json{{"workers", options.workers},
              {"rounds", options.rounds},
              {"policy", options.policy},
              {"dtype", options.dtype},
              {"seed", options.seed},
              {"inject", options.inject},
              {"most_lost", options.most_lost},
              {"patience_ms", static_cast<int64_t>(1000 * options.patience)},
              {"report", descriptor}}
      .dump();
}

/// How it ended, in words.
std::string run(const std::vector<std::string>& program) {
  std::vector<char*> arguments;
  for (const auto& word : program) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  pid_t pid = -1;
  if (const int error = ::posix_spawnp(&pid, arguments[0], nullptr, nullptr, arguments.data(), environ); error != 0) {
    throw std::runtime_error(program[0] + " cannot be run: " + std::strerror(error));
  }
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) return std::string("was ended by ") + ::strsignal(WTERMSIG(status));
  return "ended with code " + std::to_string(WEXITSTATUS(status));
}

std::string contents(int descriptor) {
  std::string text;
  char some[4096];
  ::lseek(descriptor, 0, SEEK_SET);
  for (ssize_t n; (n = ::read(descriptor, some, sizeof some)) > 0;) text.append(some, static_cast<size_t>(n));
  return text;
}

void list(const json& faults) {
  for (const auto& fault : faults) {
    auto name = fault.at("name").get<std::string>();
    auto checks = fault.at("caught_by").get<std::string>();
    name.resize(std::max<size_t>(name.size(), 20), ' ');
    checks.resize(std::max<size_t>(checks.size(), 6), ' ');
    std::cout << name << ' ' << checks << ' ' << fault.at("what").get<std::string>() << '\n';
  }
}

int audit_or_throw(const AuditOptions& options) {
  const auto program = options.program.empty() ? builtin_program() : options.program;
  const base::Fd report(::memfd_create("farad-audit-report", 0));
  if (!report) throw std::runtime_error(std::string("memfd_create: ") + std::strerror(errno));
  ::setenv("FARAD_AUDIT", request(options, report.get()).c_str(), 1);
  const auto end = run(program);
  const auto text = contents(report.get());
  if (text.empty()) {
    throw std::runtime_error(program[0] + ' ' + end +
                             " and reported nothing: does it call farad::audit::requested() before it trains?");
  }
  const auto found = json::parse(text);
  if (found.contains("error")) throw std::runtime_error(found["error"].get<std::string>());
  if (found.contains("faults")) {
    list(found["faults"]);
    return 0;
  }
  if (options.json == "-") {
    std::cout << text;
  } else {
    std::cout << table_of(found);
    if (!options.json.empty() && !(std::ofstream(options.json) << text)) {
      throw std::runtime_error(options.json + " cannot be written");
    }
  }
  return found.at("passed").get<bool>() ? 0 : failed;
}

}  // namespace

int audit(const AuditOptions& options) {
  try {
    return audit_or_throw(options);
  } catch (const std::exception& error) {
    std::cerr << "farad audit: " << error.what() << '\n';
    return could_not_run;
  }
}

}  // namespace farad::audit
