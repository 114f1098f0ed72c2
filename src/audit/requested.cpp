// The program's side of `farad audit -- program`: options come in a variable, the report goes into a descriptor.

#include <farad/audit.h>
#include <farad/error.h>
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "audit/faults.h"
#include "audit/report.h"
#include "base/environment.h"

namespace farad::audit {
namespace {

using nlohmann::json;

constexpr int could_not_run = 2;

Options options_in(const json& request) {
  Options options;
  options.workers = request.value("workers", options.workers);
  options.rounds = request.value("rounds", options.rounds);
  options.seed = request.value("seed", options.seed);
  options.inject = request.value("inject", "");
  options.most_lost = request.value("most_lost", options.most_lost);
  options.patience = std::chrono::milliseconds(request.value("patience_ms", options.patience.count()));
  options.policy = policy_named(request.value("policy", to_string(options.policy)));
  const auto dtype = request.value("dtype", "f64");
  if (dtype != "f32" && dtype != "f64") throw Error("[audit] there is no type \"" + dtype + "\": f32 or f64");
  options.dtype = dtype == "f32" ? c10::ScalarType::Float : c10::ScalarType::Double;
  return options;
}

json list_of_faults(const Training& training) {
  auto list = json::array();
  for (const auto* some : {&faults(), &training.faults}) {
    for (const auto& fault : *some) {
      list.push_back({{"name", fault.name}, {"caught_by", fault.caught_by}, {"what", fault.what}});
    }
  }
  return {{"faults", std::move(list)}};
}

void write_all(int descriptor, const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    const ssize_t n = ::write(descriptor, text.data() + at, text.size() - at);
    if (n <= 0) throw Error("[audit] the report cannot be written");
    at += static_cast<size_t>(n);
  }
}

std::string failure(const std::exception& error) {
  const json text{{"error", error.what()}};
  return text.dump(2, ' ', false, json::error_handler_t::replace) + '\n';
}

}  // namespace

std::optional<int> requested(const Training& training) {
  const auto asked = base::Environment::process().text(base::Var::Audit);
  if (!asked) return {};
  int descriptor = STDOUT_FILENO;
  try {
    const auto request = json::parse(*asked);
    descriptor = request.value("report", descriptor);
    if (request.value("inject", "") == "list") {
      write_all(descriptor, list_of_faults(training).dump(2) + '\n');
      return 0;
    }
    const auto report = run(training, options_in(request));
    write_all(descriptor, report.json());
    return report.passed() ? 0 : 1;
  } catch (const c10::Error& error) {
    write_all(descriptor, failure(std::runtime_error(error.what_without_backtrace())));
  } catch (const std::exception& error) {
    write_all(descriptor, failure(error));
  }
  return could_not_run;
}

}  // namespace farad::audit
