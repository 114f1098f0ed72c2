#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <vector>

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

/// Takes the program and its arguments off the end. They begin after "--" or with the first word that is neither an
/// option of ours nor an option's value, and are never looked into: `farad run -n 2 prog -n 5 -- x`.
std::vector<std::string> split_off_program(const CLI::App& run, std::vector<std::string>& arguments) {
  size_t at = 1;
  while (at < arguments.size() && arguments[at].starts_with('-') && arguments[at] != "--") {
    const auto* option = run.get_option_no_throw(arguments[at]);
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
  auto* run_command = add_run(app, run);
  auto* doctor_command = add_doctor(app, doctor);
  app.add_subcommand("acer", "Train an agent by ACER, with several processes on one model; see farad acer --help");

  std::vector<std::string> arguments(argv + 1, argv + argc);
  if (!arguments.empty() && arguments.front() == "acer") {
    return farad::become("farad-acer", {arguments.begin() + 1, arguments.end()});
  }
  if (!arguments.empty() && arguments.front() == run_command->get_name()) {
    run.options.program = split_off_program(*run_command, arguments);
  }
  try {
    std::reverse(arguments.begin(), arguments.end());  // as parse() wants them
    app.parse(std::move(arguments));
    if (run_command->parsed() && run.options.program.empty()) throw CLI::RequiredError("program");
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : usage_error;
  }

  if (doctor_command->parsed()) return farad::doctor::doctor(doctor);
  if (run.tag_option->count() > 0) run.options.tag_output = run.tag;
  run.options.timeout = from_seconds(run.timeout);
  run.options.grace = from_seconds(run.grace);
  return farad::run::run(run.options);
}
