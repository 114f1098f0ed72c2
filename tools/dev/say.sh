# How ./dev talks.

say() { printf '\033[1m== %s\033[0m\n' "$*"; }
[[ -t 1 ]] || say() { printf '== %s\n' "$*"; }

die() {
  printf 'dev: %s\n' "$*" >&2
  exit 1
}
