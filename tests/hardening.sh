#!/usr/bin/env bash
# usage: hardening.sh PROGRAM
# The program is position-independent, and what the loader fills in is read-only from then on.
set -euo pipefail
program=$1
command -v readelf >/dev/null || { echo "skipped: hardening: readelf was not found"; exit 77; }
wrong() { # PROGRAM
  readelf -hW "$1" | grep -q 'Type: *DYN' || echo "not position-independent"
  readelf -lW "$1" | grep -q GNU_RELRO || echo "no RELRO"
  readelf -dW "$1" | grep -qE 'FLAGS.*(BIND_)?NOW' || echo "bound lazily"
  readelf -lW "$1" | awk '$1 == "GNU_STACK" && / RWE /' | grep . && echo "an executable stack"
  return 0
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo 'int main(void) { return 0; }' >"$work/planted.c"
${CC:-cc} -no-pie -Wl,-z,norelro,-z,lazy -o "$work/planted" "$work/planted.c"
[[ $(wrong "$work/planted" | wc -l) == 3 ]] || { echo "planted: $(wrong "$work/planted")"; exit 1; }
found=$(wrong "$program")
[[ -z $found ]] || { echo "$program: $found"; exit 1; }
echo "position-independent, RELRO, bound at the start, no executable stack"
