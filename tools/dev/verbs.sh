# One function per verb of ./dev.

# Both by name: what a demo has left out before, CMake remembers.
with_tests=(-D FARAD_BUILD_TESTS=ON -D FARAD_BUILD_EXAMPLES=ON)

verb_demo() {
  configure "${preset:-release}" --tests-if-there
  build farad_demo
  say "farad_demo $*"
  "$build_dir/bin/farad_demo" "$@"
}

verb_build() {
  need test
  if [[ $preset == bench ]]; then configure bench; else configure "${preset:-release}" "${with_tests[@]}"; fi
  build "$@"
}

verb_test() {
  local passed=0 labels
  need test
  IFS=, read -ra labels <<<"$label"
  configure "${preset:-release}" "${with_tests[@]}"
  build "${labels[@]/#/tests-}"
  say "test"
  ctest --test-dir "$build_dir" --no-tests=error -j "$(nproc)" ${label:+-L "^(${label//,/|})\$"} "$@" || passed=$?
  ((passed == 0)) || show_failures "$build_dir/Testing/Temporary/LastTest.log"
  count_cases "$build_dir/Testing/Temporary/LastTest.log"
  return $passed
}

# What failed programs wrote, without the cases that passed and made no sanitizer speak: those hide the others.
show_failures() {
  awk 'function keep() { for (i = 0; i < lines; i++) text = text line[i] "\n"; lines = 0 }
       / Test: / && !inside { name = $NF }
       /^Output:$/ && !inside { inside = 1; text = ""; lines = 0; next }
       !inside { if (/^Test Failed/ || /^Test .*[Tt]imeout/) printf "\n==== %s\n%s", name, text; next }
       /^<end of output>$/ { keep(); inside = 0; next }
       /^$/ || /^\[(-----|=====)/ || (/^-----/ && text == "" && lines == 0) { next }
       /^\[ RUN      \] / { keep(); loud = 0 }
       /Sanitizer|runtime error:/ { loud = 1 }
       /^\[       OK \] / && !loud { lines = 0; next }
       { line[lines++] = $0 }' "$1"
}

# ctest counts programs; this counts what they contain. A case that began and never ended took its program with it.
count_cases() {
  awk '/^\[ RUN      \] / { begun++ }
       /^\[       OK \] .* ms\)$/ { passed++ }
       /^\[  SKIPPED \] .* ms\)$/ { skipped++ }
       END { printf "cases: %d passed, %d failed, %d skipped\n", passed, begun - passed - skipped, skipped }' "$1"
}

verb_bench() {
  local name=${1:-fabric}
  shift || true
  need bench
  configure "${preset:-bench}"
  build "bench_$name"
  if [[ $name == acer ]] && find_pfrl; then set -- --pfrl "$pfrl_python" "$@"; fi
  say "bench $name"
  "$build_dir/bin/bench_$name" "$@"
}

# Every C++ file of ours, committed or not yet.
our_sources() { git ls-files --cached --others --exclude-standard -- '*.h' '*.cpp'; }

verb_format() {
  need lint
  install_needed
  our_sources | xargs clang-format-19 -i
}

verb_lint() {
  local failed=0
  need lint test
  install_needed
  say "format"
  our_sources | xargs clang-format-19 --dry-run --Werror || { failed=1; echo "dev: ./dev format mends that" >&2; }
  say "layers"
  python3 tools/check_layers.py || failed=1
  configure "${preset:-release}" "${with_tests[@]}"
  say "tests that nobody builds"
  python3 tools/check_tests.py "$build_dir/compile_commands.json" || failed=1
  say "headers that need others before them"
  build farad_public_headers farad_headers || failed=1
  ((failed == 0)) || die "lint found something; see above"
  say "lint is content"
}

verb_fuzz() {
  local targets=("$@") target inputs found=build/fuzz-found
  need test
  configure asan
  build fuzz-targets
  if ((${#targets[@]} == 0)); then
    mapfile -t targets < <(cat "$build_dir/fuzz-targets.txt")
  fi
  mkdir -p "$found"
  for target in "${targets[@]}"; do
    target=fuzz_${target#fuzz_}
    inputs=("build/fuzz-corpus/$target")  # what this machine learned; the first one is written to
    mkdir -p "${inputs[0]}"
    [[ -d tests/fuzz/corpus/${target#fuzz_} ]] && inputs+=("tests/fuzz/corpus/${target#fuzz_}")
    say "$target for $seconds s"
    LSAN_OPTIONS=suppressions=tools/lsan.supp:print_suppressions=0 UBSAN_OPTIONS=print_stacktrace=1 \
      "$build_dir/bin/$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -verbosity=0 -print_final_stats=1 \
      -artifact_prefix="$found/" "${inputs[@]}" ||
      die "$target found an input in $found: mend the fault and make the input a regression test"
  done
}

verb_torch() {
  (($# == 1)) || die "which version? For example: ./dev torch 2.13.0"
  make_torch_environment "$1"
  say "libtorch $1 in $torch_dir"
}

verb_doctor() {
  local set missing
  say "packages"
  for set in build torch test bench lint clang wheel; do
    mapfile -t missing < <(missing_packages "$set")
    printf '  %-6s %s\n' "$set" "${missing[*]:+missing: }${missing[*]:-all there}"
  done
  echo "  verbs install what they need; demo needs build and torch only"
  if [[ -x build/${preset:-release}/bin/farad ]]; then
    say "farad doctor"
    "build/${preset:-release}/bin/farad" doctor
  else
    echo "  ./dev demo builds \`farad\`, whose doctor looks at the rest of the machine"
  fi
}

verb_clean() {
  rm -rf build
  case ${1:-} in
    '') ;;
    --all) rm -rf .venv-torch-* ;;
    *) die "clean knows only --all" ;;
  esac
}
