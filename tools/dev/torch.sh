# Which libtorch to build with. find_torch sets torch_dir, the directory of TorchConfig.cmake, and torch_suffix, which
# keeps the build directories of different libtorchs apart.

# torch_below PREFIX: prints the directory of TorchConfig.cmake
torch_below() {
  local candidate
  for candidate in "$1" "$1"/Torch "$1"/share/cmake/Torch "$1"/lib/cmake/Torch "$1"/lib/*/cmake/Torch; do
    if [[ -f $candidate/TorchConfig.cmake ]]; then
      readlink -f "$candidate"
      return
    fi
  done
  return 1
}

find_torch() {
  local prefix prefixes
  torch_suffix=-torch-custom
  if [[ -n ${TORCH_DIR:-} ]]; then
    torch_dir=$(torch_below "$TORCH_DIR") || die "TORCH_DIR=$TORCH_DIR holds no TorchConfig.cmake"
    return
  fi
  IFS=':;' read -ra prefixes <<<"${CMAKE_PREFIX_PATH:-}"
  for prefix in "${prefixes[@]}"; do
    if torch_dir=$(torch_below "$prefix"); then return; fi
  done
  if [[ -n $torch_version ]]; then
    torch_suffix=-torch-$torch_version
    make_torch_environment "$torch_version"
    return
  fi
  torch_suffix=
  need torch
  install_needed
  torch_dir=$(torch_below /usr) || die "no libtorch in /usr: give TORCH_DIR or --torch VERSION"
}

# find_pfrl: sets pfrl_python, the interpreter of one of our virtual environments that has PFRL; puts it there if it is
# missing, with all else left as it is. Fails if there is no environment, or if PyPI does not answer.
find_pfrl() {
  local environment
  for environment in .venv-torch-*; do
    [[ -f $environment/complete ]] || continue
    pfrl_python=$environment/bin/python
    "$pfrl_python" -c 'import pfrl' >/dev/null 2>&1 && return
    say "PFRL into $environment"
    # packaging is what it forgets to ask for.
    "$pfrl_python" -m pip install pfrl packaging </dev/null && return
  done
  return 1
}

# make_torch_environment VERSION: sets torch_dir
make_torch_environment() {
  local environment=.venv-torch-$1 python=/usr/bin/python3 package
  if [[ ! -f $environment/complete ]]; then
    need wheel
    install_needed
    # Debian's interpreter before any other in PATH: python3-venv belongs to it.
    [[ -x $python ]] || python=python3
    say "libtorch $1 into $environment"
    rm -rf "$environment"
    "$python" -m venv "$environment"
    "$environment/bin/python" -m pip install "torch==$1" numpy </dev/null || {
      "$environment/bin/python" -m pip index versions torch </dev/null >/dev/null 2>&1 ||
        die_out_of_reach "PyPI does not answer; pip's messages are above"
      die "pip could not install torch==$1; its messages are above"
    }
    touch "$environment/complete"  # an interrupted installation is begun anew
  fi
  package=$(echo "$environment"/lib/python3*/site-packages/torch)
  torch_dir=$(torch_below "$package") || die "$package holds no TorchConfig.cmake"
  if grep -qE '^cuda.*=.*[0-9]' "$package/version.py" && ! command -v nvcc >/dev/null && [[ ! -x /usr/local/cuda/bin/nvcc ]]; then
    die "torch $1 in $environment is built for CUDA, and there is no CUDA toolkit to build against it"
  fi
}
