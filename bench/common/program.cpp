#include "common/program.h"

#include <c10/util/Exception.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "arithmetic/arithmetic.h"
#include "memory/small_blocks.h"

namespace farad::bench {

using nlohmann::json;

int run_program(int argc, char** argv, const char* usage, const Roles& roles, int (*run)(const Words&)) {
  Words words(argv + 1, argv + argc);
  try {
    if (const auto role = words.empty() ? roles.end() : roles.find(words[0]); role != roles.end()) {
      words.erase(words.begin());
      role->second(words);
      return 0;
    }
    if (std::find(words.begin(), words.end(), "--help") != words.end()) return std::fputs(usage, stdout), 0;
    // For all that are compared, so that none has the better arithmetic.
    if (const auto kernels = arithmetic::better_kernels(); !kernels.empty()) {
      ::setenv(arithmetic::kernels_variable, kernels.c_str(), 1);
    }
    ::setenv(memory::malloc_variable, memory::many_small_blocks, 0);  // As farad run does; for all, too.
    return run(words);
  } catch (const c10::Error& error) {
    std::fprintf(stderr, "%s\n", error.what_without_backtrace());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  return 2;
}

void parse(const Words& words, const char* usage, Options& options,
           const std::function<bool(const std::string& option, const Value& value)>& own) {
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& option = words[i];
    const Value value = [&] {
      TORCH_CHECK(i + 1 < words.size(), "[bench] ", option, " needs a value\n", usage);
      return words[++i];
    };
    if (own(option, value)) continue;
    if (option == "--quick") {
      options.placements = {Placement::SameCore};
    } else if (option == "--no-peer") {
      options.peer = false;
    } else if (option == "--python") {
      options.python = value();
    } else if (option == "--json") {
      options.json_path = value();
    } else {
      TORCH_CHECK(false, "[bench] unknown option ", option, "\n", usage);
    }
  }
}

std::string fresh_meeting() {
  static int meetings = 0;
  const auto path = std::filesystem::temp_directory_path() /
                    ("farad-bench-" + std::to_string(::getpid()) + "-" + std::to_string(++meetings));
  return "file://" + path.string();
}

json measure_torch(const Options& options, Placement placement, const std::string& script, const Words& words,
                   int processes) {
  static int measured = 0;
  Children children;
  const std::string port = std::to_string(20'000 + ::getpid() % 20'000 + ++measured);
  for (int rank = 0; rank < processes; ++rank) {
    Words command{options.python, FARAD_BENCH_DIR "/" + script, std::to_string(rank), std::to_string(processes), port};
    command.insert(command.end(), words.begin(), words.end());
    children.start(command, core_for(placement, rank));
  }
  try {
    return json::parse(children.output(180));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "PyTorch could not be measured by %s (%s); `%s` needs torch\n", script.c_str(), error.what(),
                 options.python.c_str());
    return json::object();
  }
}

void write_results(const Options& options, const json& results) {
  const std::filesystem::path path(options.json_path);
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path());
  std::ofstream file(path);
  file << results.dump(2) << '\n';
  if (!file.flush()) throw std::runtime_error("[bench] cannot write " + options.json_path);
  std::printf("\nAll figures are in %s\n", options.json_path.c_str());
}

double instructions_in(const std::string& path) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("summary:", 0) == 0 || line.rfind("totals:", 0) == 0) {
      return std::stod(line.substr(line.find(':') + 1));
    }
  }
  throw std::runtime_error("[bench] no total in " + path);
}

}  // namespace farad::bench
