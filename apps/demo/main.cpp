// Several processes train a small language model as a pipeline, and the first one tells how that went.

#include <farad/error.h>
#include <farad/spawn.h>
#include <signal.h>
#include <sys/mman.h>

#include <charconv>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <string_view>

#include "arithmetic/arithmetic.h"
#include "demo/files.h"
#include "demo/show.h"

namespace farad::demo {
namespace {

constexpr const char* usage =
    R"(usage: farad_demo [options]

  --workers N      processes that the model is spread over (3)
  --steps N        of the whole training (400; with --resume what it was begun with)
  --seed N         decides the model's first values and the order of passages (1)
  --schedule NAME  1f1b (default), gpipe, interleaved
  --resume         goes on from the last checkpoint of that seed
  --out DIRECTORY  for what it writes (out/demo)
  --help           says this
)";

template <class Number>
Number number_of(std::string_view option, std::string_view text, Number least, Number most) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most) {
    throw Error("[demo] " + std::string(option) + " " + std::string(text) + ": a number from " + std::to_string(least) +
                " to " + std::to_string(most) + " is needed");
  }
  return value;
}

ShowOptions parse(int argc, char** argv) {
  ShowOptions options;
  for (int i = 1; i < argc; i++) {
    const std::string_view option = argv[i];
    const auto value = [&]() -> std::string_view {
      if (i + 1 >= argc) throw Error("[demo] " + std::string(option) + " needs a value; see --help");
      return argv[++i];
    };
    if (option == "--workers") {
      options.workers = number_of(option, value(), 1, 6);
    } else if (option == "--steps") {
      options.steps = number_of<int64_t>(option, value(), 1, 1'000'000);
    } else if (option == "--seed") {
      options.seed = number_of<uint64_t>(option, value(), 0, 1'000'000'000);
    } else if (option == "--schedule") {
      options.schedule = schedule_named(value());
    } else if (option == "--resume") {
      options.resume = true;
    } else if (option == "--out") {
      options.out = value();
    } else {
      throw Error("[demo] there is no option \"" + std::string(option) + "\"; see --help");
    }
  }
  return options;
}

/// Shared by all processes, so that it does not matter which of them the signal meets.
std::atomic<bool>* stop = nullptr;
static_assert(std::atomic<bool>::is_always_lock_free);

/// The first Ctrl-C ends the training in good order; the next one ends the process.
void stop_on_signals() {
  void* shared = ::mmap(nullptr, sizeof *stop, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  TORCH_CHECK(shared != MAP_FAILED, "[demo] mmap: ", std::strerror(errno));
  stop = new (shared) std::atomic<bool>(false);
  struct sigaction action = {};
  action.sa_handler = [](int) { stop->store(true); };
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  for (const int signal : {SIGINT, SIGTERM}) ::sigaction(signal, &action, nullptr);
}

int run(const ShowOptions& options) {
  stop_on_signals();
  try {
    spawn(options.workers, [&](Worker& worker) {
      if (worker.rank() == 0) show(worker, options, *stop);
    });
  } catch (const Error& error) {
    std::fprintf(stderr, "\nfarad_demo: %s\n", error.what_without_backtrace());
    if (const auto last = Checkpoints(checkpoints_of(options)).last()) {
      std::fprintf(stderr, "The last checkpoint is %s, after step %ld; --resume goes on from there.\n",
                   last->path.c_str(), static_cast<long>(last->steps));
    }
    return 1;
  }
  return *stop ? 130 : 0;
}

}  // namespace
}  // namespace farad::demo

int main(int argc, char** argv) {
  for (int i = 1; i < argc; i++) {
    if (std::string_view(argv[i]) == "--help") return std::fputs(farad::demo::usage, stdout) < 0;
  }
  try {
    const auto options = farad::demo::parse(argc, argv);
    farad::arithmetic::use_one_core_well(argv);
    return farad::demo::run(options);
  } catch (const c10::Error& error) {
    std::fprintf(stderr, "farad_demo: %s\n", error.what_without_backtrace());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "farad_demo: %s\n", error.what());
  }
  return 1;
}
