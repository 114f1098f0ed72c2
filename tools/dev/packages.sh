# What ./dev needs from Debian, why, and how it gets it. A verb asks for sets; only what is missing is installed.

declare -A packages_of=(
  [build]="cmake ninja-build g++ ccache lld libasio-dev libmsgpack-cxx-dev libcli11-dev nlohmann-json3-dev libssl-dev"
  [torch]="libtorch-dev libopenblas0-pthread"
  [wheel]="python3-venv"
  [test]="libgtest-dev libgmock-dev openmpi-bin iproute2"
  [lint]="clang-format-19 python3"
  [clang]="clang-19 lld-19 libclang-rt-19-dev llvm-19"
  [bench]="python3-torch"
)

declare -A why=(
  [cmake]="configures the build"
  [ninja-build]="runs the build"
  [g++]="the compiler"
  [ccache]="what was compiled once need not be again"
  [lld]="links in a fraction of the time"
  [libasio-dev]="TCP, timers, sockets"
  [libmsgpack-cxx-dev]="values on the wire"
  [libcli11-dev]="the command line of \`farad\`"
  [nlohmann-json3-dev]="reports and checkpoints as JSON"
  [libssl-dev]="proves that workers know the secret"
  [libtorch-dev]="tensors and local autograd"
  [libopenblas0-pthread]="matrix products 34 times faster than with the BLAS libtorch would use otherwise"
  [python3-venv]="keeps the libtorch of --torch apart from the system"
  [libgtest-dev]="the test framework"
  [libgmock-dev]="its matchers"
  [openmpi-bin]="tests that workers start under a real mpirun"
  [iproute2]="tests that give each machine its own network"
  [clang-format-19]="checks the format"
  [python3]="runs the checks in tools/"
  [clang-19]="sanitizers, fuzzing, thread-safety analysis"
  [lld-19]="clang's linker"
  [libclang-rt-19-dev]="clang's sanitizers and libFuzzer"
  [llvm-19]="names in the sanitizers' reports, which their suppressions go by"
  [python3-torch]="PyTorch's RPC, to compare with"
)

# A tool counts wherever it comes from; a library must be Debian's.
declare -A command_of=(
  [cmake]=cmake [ninja-build]=ninja [g++]=g++ [ccache]=ccache [lld]=ld.lld [openmpi-bin]=mpirun [iproute2]=ip
  [clang-format-19]=clang-format-19 [python3]=python3 [clang-19]=clang++-19 [lld-19]=ld.lld-19 [llvm-19]=llvm-symbolizer-19
)

is_installed() {
  if [[ -n ${command_of[$1]:-} ]]; then
    command -v "${command_of[$1]}" >/dev/null
  else
    [[ $(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null) == installed ]]
  fi
}

# missing_packages SET...: one per line
missing_packages() {
  local set package
  for set in "$@"; do
    for package in ${packages_of[$set]}; do
      is_installed "$package" || echo "$package"
    done
  done
}

as_root() {
  if ((EUID == 0)); then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    die "not root, and there is no sudo; as root, run: $*"
  fi
}

apt_install() {
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends -o Dpkg::Use-Pty=0 "$@" </dev/null
}

# need SET...: remembers; install_needed then installs what is missing of all sets at once
needed=()
need() { needed+=("$@"); }

install_needed() {
  local missing package set
  if ! command -v apt-get >/dev/null; then
    say "no apt here; this has to be there, by Debian's names:"
    for set in "${needed[@]}"; do echo "     ${packages_of[$set]}"; done
    return
  fi
  mapfile -t missing < <(missing_packages "${needed[@]}")
  ((${#missing[@]})) || return 0
  say "installing with apt:"
  for package in "${missing[@]}"; do printf '     %-22s %s\n' "$package" "${why[$package]}"; done
  # A fresh machine has no package lists, an old one has lists of packages that are gone.
  if compgen -G '/var/lib/apt/lists/*_Packages*' >/dev/null && apt_install "${missing[@]}"; then return; fi
  as_root apt-get update </dev/null
  apt_install "${missing[@]}" || die "apt could not install ${missing[*]}; its messages are above"
}
