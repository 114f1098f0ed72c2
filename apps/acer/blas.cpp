#include "acer/blas.h"

#include <dlfcn.h>

namespace farad::acer {

std::string better_blas_kernels() {
#ifdef __x86_64__
  using NameOf = char* (*)();
  const auto name_of = reinterpret_cast<NameOf>(::dlsym(RTLD_DEFAULT, "openblas_get_corename"));
  if (!name_of || name_of() != std::string("Prescott")) return "";  // Another BLAS, or one that knows better.
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl")) return "SkylakeX";
  if (__builtin_cpu_supports("avx2")) return "Haswell";
#endif
  return "";
}

}  // namespace farad::acer
