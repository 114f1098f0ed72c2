# How ./dev talks.

say() { printf '\033[1m== %s\033[0m\n' "$*"; }
[[ -t 1 ]] || say() { printf '== %s\n' "$*"; }

die() {
  printf 'dev: %s\n' "$*" >&2
  exit 1
}

# What only the world outside could mend: as die, but whoever called can tell by the status.
out_of_reach=75
die_out_of_reach() {
  printf 'dev: %s\n' "$*" >&2
  exit $out_of_reach
}
