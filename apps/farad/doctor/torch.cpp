#include <dlfcn.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <vector>

#include "arithmetic/arithmetic.h"
#include "doctor/checks.h"

namespace farad::doctor {
namespace {

constexpr const char* section = "libtorch";
constexpr const char* show_config = "_ZN2at11show_configB5cxx11Ev";  // std::string at::show_config()

std::string file_of(const void* symbol) {
  Dl_info about{};
  if (!symbol || ::dladdr(symbol, &about) == 0 || !about.dli_fname) return "";
  std::error_code error;
  const auto path = std::filesystem::canonical(about.dli_fname, error);
  return error ? about.dli_fname : path.string();
}

/// libtorch is loaded at run time, because `farad run` is not to pay for what only the doctor needs; and so that one
/// that cannot be loaded is a finding and not a failure to start.
class Torch {
 public:
  Torch() {
    // The one that programs were linked with, else whatever the loader finds.
    for (const char* name : {FARAD_TORCH_LIBRARY, "libtorch_cpu.so"}) {
      library_ = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
      if (library_) return;
      if (const char* why = ::dlerror(); error_.empty() && why) error_ = why;
    }
  }

  bool loaded() const { return library_ != nullptr; }
  const std::string& error() const { return error_; }

  /// Of libtorch or of what it brought along; nullptr if there is none.
  void* find(const char* symbol) const { return ::dlsym(library_, symbol); }
  std::string file() const { return file_of(find(show_config)); }

  /// at::show_config(): the settings libtorch was built with.
  std::string config() const {
    auto* const show = reinterpret_cast<std::string (*)()>(find(show_config));
    return show ? show() : "";
  }

 private:
  void* library_ = nullptr;
  std::string error_;
};

/// "TORCH_VERSION=1.13.0, " -> "1.13.0"
std::string setting(const std::string& config, const std::string& name) {
  const auto begin = config.find(name + '=');
  if (begin == config.npos) return "";
  const auto value = begin + name.size() + 1;
  return config.substr(value, config.find_first_of(",\n", value) - value);
}

using Sgemm = void(const char*, const char*, const int*, const int*, const int*, const float*, const float*, const int*,
                   const float*, const int*, const float*, float*, const int*);

/// Of a product of two 512 x 512 matrices.
int gigaflops(Sgemm& sgemm) {
  constexpr int n = 512;
  const std::vector<float> a(n * n, 1.0f);
  const std::vector<float> b(n * n, 0.5f);
  std::vector<float> c(n * n);
  const float one = 1;
  const float zero = 0;
  double best = 0;
  for (int i = 0; i < 3; ++i) {
    const auto start = std::chrono::steady_clock::now();
    sgemm("N", "N", &n, &n, &n, &one, a.data(), &n, b.data(), &n, &zero, c.data(), &n);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    best = std::max(best, 2e-9 * n * n * n / took.count());
  }
  return static_cast<int>(best + 0.5);
}

Finding blas(const Torch& torch) {
  const auto built_in = setting(torch.config(), "BLAS_INFO");
  auto* const sgemm = reinterpret_cast<Sgemm*>(torch.find("sgemm_"));
  if (built_in != "generic" || !sgemm) return {section, "BLAS", built_in.empty() ? "unknown" : built_in + ", built in"};

  struct Known {
    const char* name;
    const char* symbol;
  };
  constexpr std::array known{Known{"OpenBLAS", "openblas_get_config"}, Known{"MKL", "MKL_Get_Version_String"},
                             Known{"BLIS", "bli_info_get_version_str"}, Known{"ATLAS", "ATL_buildinfo"}};
  Finding finding{section, "BLAS", "reference BLAS", Verdict::Warning,
                  "matrix products are some thirty times slower than they could be: apt install libopenblas0-pthread"};
  for (const auto& [name, symbol] : known) {
    if (torch.find(symbol)) finding = {section, "BLAS", name};
  }
  if (const auto kernels = arithmetic::kernels_named_by(torch.find("openblas_get_corename")); !kernels.empty()) {
    finding.value += " for " + kernels;
  }
  if (const auto better = arithmetic::better_kernels(); !better.empty()) {
    finding.verdict = Verdict::Warning;
    finding.advice =
        std::string("OpenBLAS does not know this processor and is several times slower than it could be: set ") +
        arithmetic::kernels_variable + '=' + better + " before a program starts, as farad run does";
  }
  finding.value +=
      " (" + file_of(torch.find("sgemm_")) + "), " + std::to_string(gigaflops(*sgemm)) + " GFLOP/s in single precision";
  return finding;
}

}  // namespace

Findings check_torch() {
  Findings findings{{section, "built with", FARAD_TORCH_VERSION}};
  const Torch torch;
  if (!torch.loaded()) {
    findings.push_back({section, "loads", torch.error(), Verdict::Broken,
                        "install libtorch (apt install libtorch-dev libopenblas0-pthread), or let LD_LIBRARY_PATH name "
                        "the directory of libtorch_cpu.so"});
    return findings;
  }
  Finding loads{section, "loads", setting(torch.config(), "TORCH_VERSION")};
  if (loads.value.empty()) loads.value = "yes";
  loads.value += " (" + torch.file() + ')';
  findings.push_back(loads);
  findings.push_back(blas(torch));
  return findings;
}

}  // namespace farad::doctor
