#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <vector>

#include "audit/audit.h"
#include "beside.h"
#include "doctor/doctor.h"
#include "run/run.h"

namespace {

using farad::run::RunOptions;
using std::chrono::milliseconds;

constexpr int usage_error = 2;

/// A program that was started with a standard descriptor closed would take the next pipe for it.
void open_standard_descriptors() {
  int fd = 0;
  while ((fd = ::open("/dev/null", O_RDWR)) >= 0 && fd <= STDERR_FILENO) {
  }
  if (fd >= 0) ::close(fd);
}

milliseconds from_seconds(double seconds) { return milliseconds(static_cast<int64_t>(seconds * 1000 + 0.5)); }

struct RunArguments {
  RunOptions options;
  CLI::Option* tag_option = nullptr;
  bool tag = false;
  double timeout = 0;
  double grace = 5;
};

CLI::App* add_run(CLI::App& app, RunArguments& arguments) {
  auto* run = app.add_subcommand("run", "Start N workers of a program on this machine and wait for them");
  run->add_option("-n,--workers", arguments.options.workers, "Number of workers")
      ->required()
      ->type_name("N")
      ->check(CLI::Range(1, 65'535));
  arguments.tag_option =
      run->add_flag("--tag-output,!--no-tag-output", arguments.tag,
                    "Write the rank before every line of output; done on a terminal unless told otherwise");
  run->add_option("--timeout", arguments.timeout, "Stop the job after this time and return 124")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.001, 1e9));
  run->add_option("--grace", arguments.grace, "Time between SIGTERM and SIGKILL when the job is stopped")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  run->footer(
      "farad run -n N [options] [--] program [arguments]\n\n"
      "Each worker finds RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, a FARAD_SECRET\n"
      "of this job and OMP_NUM_THREADS (its share of the cores) in its environment; the last two unless they are set.\n"
      "Where OpenBLAS is too old to know the processor, OPENBLAS_CORETYPE is set as well. GLIBC_TUNABLES, unless set,\n"
      "lets malloc keep more small blocks at hand.\n"
      "Standard input goes to rank 0. When a worker fails, the others are stopped. Returns the code of the first\n"
      "failure (128 + signal if a signal ended it), 124 after --timeout, 126 or 127 if the program cannot be run.");
  return run;
}

CLI::App* add_doctor(CLI::App& app, farad::doctor::DoctorOptions& options) {
  auto* doctor = app.add_subcommand("doctor", "Look at this machine and say what is wrong and how to mend it");
  doctor->add_flag("--json", options.json, "Print JSON");
  doctor->add_flag("--variables", options.variables, "Only print the table of environment variables, as Markdown");
  doctor->footer("Returns 1 if something is broken, 0 otherwise.");
  return doctor;
}

CLI::App* add_audit(CLI::App& app, farad::audit::AuditOptions& options) {
  auto* audit = app.add_subcommand("audit", "Tell whether a training by several processes applies the right gradients");
  audit->add_option("-n,--workers", options.workers, "Number of processes that train")
      ->type_name("N")
      ->check(CLI::Range(1, 32))
      ->capture_default_str();
  audit->add_option("--rounds", options.rounds, "Updates of each")
      ->type_name("R")
      ->check(CLI::Range(2, 1'000'000))
      ->capture_default_str();
  audit
      ->add_option("--policy", options.policy,
                   "How their updates come together: locked, hogwild, allreduced, managed or averaged")
      ->type_name("P")
      ->capture_default_str();
  audit->add_option("--dtype", options.dtype, "f32 or f64")->type_name("TYPE")->capture_default_str();
  audit->add_option("--seed", options.seed, "Of all that is random")->type_name("S")->capture_default_str();
  audit->add_option("--inject", options.inject, "Plant a defect, which has to be found; \"list\" shows them")
      ->type_name("FAULT");
  audit->add_option("--most-lost", options.most_lost, "Hogwild: which part of the element updates may be lost")
      ->type_name("PART")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  audit->add_option("--patience", options.patience, "How long the processes of one part of the audit may take")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.001, 1e6))
      ->capture_default_str();
  audit->add_option("--json", options.json, "Also write the report there; - prints it instead of the table")
      ->type_name("FILE");
  audit->footer(
      "farad audit [options] [[--] program [arguments]]\n\n"
      "The program calls farad::audit::requested(training) before it trains. Without a program, a small training that\n"
      "is built in. Returns 0 if the training passes, 1 if a check fails or a defect was planted (also if it is not\n"
      "found, which the report says), 2 if it could not be told.");
  return audit;
}

/// Takes the program and its arguments off the end. They begin after "--" or with the first word that is neither an
/// option of ours nor an option's value, and are never looked into: `farad run -n 2 prog -n 5 -- x`.
std::vector<std::string> split_off_program(const CLI::App& command, std::vector<std::string>& arguments) {
  size_t at = 1;
  while (at < arguments.size() && arguments[at].starts_with('-') && arguments[at] != "--") {
    const auto* option = command.get_option_no_throw(arguments[at]);
    at += option && option->get_items_expected_min() > 0 ? 2 : 1;
  }
  at = std::min(at, arguments.size());
  const size_t begin = at < arguments.size() && arguments[at] == "--" ? at + 1 : at;
  std::vector<std::string> program(arguments.begin() + static_cast<ptrdiff_t>(begin), arguments.end());
  arguments.resize(at);
  return program;
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_descriptors();

  CLI::App app("farad: the backward pass of models that lie on several processes and machines", "farad");
  app.set_version_flag("--version", "farad " FARAD_VERSION);
  app.require_subcommand(1);
  RunArguments run;
  farad::doctor::DoctorOptions doctor;
  farad::audit::AuditOptions audit;
  auto* run_command = add_run(app, run);
  auto* doctor_command = add_doctor(app, doctor);
  app.add_subcommand("acer", "Train an agent by ACER, with several processes on one model; see farad acer --help");
  auto* audit_command = add_audit(app, audit);

  std::vector<std::string> arguments(argv + 1, argv + argc);
  if (!arguments.empty() && arguments.front() == "acer") {
    return farad::become("farad-acer", {arguments.begin() + 1, arguments.end()});
  }
  if (!arguments.empty() && arguments.front() == run_command->get_name()) {
    run.options.program = split_off_program(*run_command, arguments);
  } else if (!arguments.empty() && arguments.front() == audit_command->get_name()) {
    audit.program = split_off_program(*audit_command, arguments);
  }
  try {
    std::reverse(arguments.begin(), arguments.end());  // as parse() wants them
    app.parse(std::move(arguments));
    if (run_command->parsed() && run.options.program.empty()) throw CLI::RequiredError("program");
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : usage_error;
  }

  if (doctor_command->parsed()) return farad::doctor::doctor(doctor);
  if (audit_command->parsed()) return farad::audit::audit(audit);
  if (run.tag_option->count() > 0) run.options.tag_output = run.tag;
  run.options.timeout = from_seconds(run.timeout);
  run.options.grace = from_seconds(run.grace);
  return farad::run::run(run.options);
}
