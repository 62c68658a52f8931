# For tests of the program, sourced: KILN is their first argument, $work a folder that goes with them, and fail prints what
# the last command said ($work/out, $work/err) and ends.
set -euo pipefail
kiln=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
  echo "$*" >&2
  cat "$work/err" "$work/out" >&2
  exit 1
}
