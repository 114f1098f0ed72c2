// What `farad audit` starts when it is given no program.

#include <cstdio>

#include "audit/builtin.h"

int main() {
  if (const auto code = farad::audit::requested(farad::audit::builtin())) return *code;
  std::fputs("This is what `farad audit` runs; start that.\n", stderr);
  return 2;
}
