#include "arithmetic/arithmetic.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>

namespace farad::arithmetic {
namespace {

/// The best that OpenBLAS has for this processor and that every version knows; empty if we cannot tell.
std::string best_known_kernels() {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl")) return "SkylakeX";
  if (__builtin_cpu_supports("avx2")) return "Haswell";
#endif
  return "";
}

/// Of the BLAS that this program has, or that programs which are linked with one will get.
std::string chosen_kernels() {
  constexpr const char* get_corename = "openblas_get_corename";
  if (void* const found = ::dlsym(RTLD_DEFAULT, get_corename)) return kernels_named_by(found);
  // Loading one would start threads, and we may be about to fork.
  constexpr const char* threads = "OPENBLAS_NUM_THREADS";
  const bool unset = !std::getenv(threads);
  if (unset) ::setenv(threads, "1", 1);
  void* const library = ::dlopen("libblas.so.3", RTLD_LAZY | RTLD_LOCAL);
  if (unset) ::unsetenv(threads);
  if (!library) return "";
  const auto name = kernels_named_by(::dlsym(library, get_corename));
  ::dlclose(library);
  return name;
}

}  // namespace

std::string kernels_named_by(void* get_corename) {
  return get_corename ? reinterpret_cast<char* (*)()>(get_corename)() : "";
}

std::string better_kernels() {
  if (std::getenv(kernels_variable)) return "";
  const auto best = best_known_kernels();
  // What OpenBLAS takes a processor for that it does not know. One that has AVX2 is none.
  return !best.empty() && chosen_kernels() == "Prescott" ? best : "";
}

void use_one_core_well(char** argv) {
  constexpr const char* threads = "OMP_NUM_THREADS";
  const auto kernels = better_kernels();
  if (std::getenv(threads) && kernels.empty()) return;
  ::setenv(threads, "1", 0);
  if (!kernels.empty()) ::setenv(kernels_variable, kernels.c_str(), 1);
  ::execv("/proc/self/exe", argv);
}

}  // namespace farad::arithmetic
