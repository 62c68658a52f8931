#!/usr/bin/env bash
# usage: usage.sh KILN
# Runs the program as a user would, wrongly and rightly: exit status, what stands on stdout, how many lines of stderr.
set -euo pipefail
kiln=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

fail() {
  echo "FAILED: $1"
  sed 's/^/  stdout: /' "$work/out" | head -5
  sed 's/^/  stderr: /' "$work/err" | head -5
  failures=$((failures + 1))
}

# expect STATUS STDERR_LINES PATTERN ARGS...: PATTERN must match stderr, or stdout where STDERR_LINES is 0.
expect() {
  local status=$1 lines=$2 pattern=$3 got=0 where=err
  shift 3
  "$kiln" "$@" >"$work/out" 2>"$work/err" || got=$?
  [[ $got == "$status" ]] || fail "kiln $*: exit $got, expected $status"
  [[ $(wc -l <"$work/err") == "$lines" ]] || fail "kiln $*: stderr should have $lines line(s)"
  [[ $lines == 0 ]] && where=out
  grep -qE -- "$pattern" "$work/$where" || fail "kiln $*: std$where lacks '$pattern'"
  if [[ $status == 2 && -s $work/out ]]; then fail "kiln $*: wrong usage wrote to stdout"; fi
}

expect 0 0 '^Usage: kiln COMMAND' --help
expect 0 0 '^kiln [0-9]+\.[0-9]+\.[0-9]+ \(' --version
expect 0 0 'Example:' doctor --help
expect 0 0 '^cpu ' doctor
expect 0 0 '^\{' doctor --json
expect 0 0 '^\{' doctor --json --seed 7 --device cpu --out "$work/runs"

expect 2 2 '^kiln: no command given'
expect 2 1 "^kiln: unknown command 'docter'; did you mean 'doctor'\?$" docter
expect 2 2 "^kiln: unknown command 'frobnicate'$" frobnicate
expect 2 1 "^kiln: unknown option '--jsno'; did you mean '--json'\?$" doctor --jsno
expect 2 2 "^kiln: unknown option '--frobnicate'$" doctor --frobnicate
expect 2 2 "^kiln: unexpected argument 'now'$" doctor now
expect 2 1 "^kiln: --device is 'tpu'; expected cpu, cuda, cuda:N, meta or auto$" doctor --device tpu
expect 2 1 "^kiln: --seed is '-1'; expected a whole number" doctor --seed=-1
expect 2 2 '^kiln: .*--seed' doctor --seed
expect 2 2 "^kiln: unknown command 'a; b\\\\x1b'$" $'a\nb\e'
expect 2 2 "^kiln: unknown command ''$" ''
expect 3 1 '^kiln: cuda:9999 is not available: ' doctor --device cuda:9999

# A result that could not be written is a failure.
if [[ -w /dev/full ]]; then
  got=0
  "$kiln" doctor --json >/dev/full 2>"$work/err" || got=$?
  [[ $got == 1 ]] || fail "kiln doctor >/dev/full: exit $got, expected 1"
fi

if command -v python3 >/dev/null; then
  "$kiln" doctor --json >"$work/out" 2>"$work/err"
  python3 -m json.tool "$work/out" >/dev/null || fail "kiln doctor --json: not one JSON document"
fi

[[ $failures == 0 ]] || exit 1
