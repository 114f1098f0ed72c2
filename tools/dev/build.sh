# Configures and builds. Sets build_dir.

# As many compilers as there are cores, if there is memory: one that reads libtorch's headers takes up to 1 GiB.
jobs_that_fit() {
  local cores gib limit
  cores=$(nproc)
  gib=$(awk '/^MemAvailable/ { print int($2 / 1048576) }' /proc/meminfo)
  limit=$(cat /sys/fs/cgroup/memory.max 2>/dev/null || echo max)
  if [[ $limit =~ ^[0-9]+$ ]] && ((limit >> 30 < gib)); then gib=$((limit >> 30)); fi
  ((gib < cores)) && cores=$gib
  echo $((cores > 0 ? cores : 1))
}

# configure PRESET [--tests-if-there] [cmake options]: with that one the tests are left out, which need more than the
# rest does, unless they are configured there already
configure() {
  local name=$1 options=() key tests_if_there=
  shift
  if [[ ${1:-} == --tests-if-there ]]; then
    tests_if_there=1
    shift
  fi
  need build
  case $name in asan | tsan) need clang ;; esac
  case $compiler in
    '') ;;
    gcc) options+=(-D CMAKE_CXX_COMPILER=g++) ;;
    clang) need clang; options+=(-D CMAKE_CXX_COMPILER=clang++-19) ;;
    *) options+=(-D "CMAKE_CXX_COMPILER=$compiler") ;;
  esac
  find_torch
  install_needed
  build_dir=build/$name
  [[ -z $compiler ]] || build_dir+=-$(basename "$compiler")
  build_dir+=$torch_suffix
  options+=(-D "Torch_DIR=$torch_dir")
  # CMake remembers every part of the libtorch it found; another one needs a new memory.
  key="${options[*]}"
  if [[ $(cat "$build_dir/configured-for" 2>/dev/null) != "$key" ]]; then
    rm -rf "$build_dir/CMakeCache.txt" "$build_dir/CMakeFiles"
  fi
  [[ -z $tests_if_there || -f $build_dir/CMakeCache.txt ]] || options+=(-D FARAD_BUILD_TESTS=OFF)
  [[ -z ${CI:-} ]] || options+=(-D FARAD_WERROR=ON)
  say "configure $build_dir"
  mkdir -p "$build_dir"
  cmake --preset "$name" -B "$build_dir" "${options[@]}" "$@" >"$build_dir/configure.log" 2>&1 || {
    cat "$build_dir/configure.log"
    die "cmake could not configure $build_dir"
  }
  grep -E '^-- farad:|Warning' "$build_dir/configure.log" || true
  echo "$key" >"$build_dir/configured-for"
}

# build [targets]
build() {
  local jobs
  jobs=$(jobs_that_fit)
  say "build ${*:-everything} in $build_dir, $jobs at a time"
  NINJA_STATUS='[%f/%t, %e s] ' cmake --build "$build_dir" -j "$jobs" ${1:+--target "$@"}
}
