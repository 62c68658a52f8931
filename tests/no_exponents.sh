#!/usr/bin/env bash
# usage: no_exponents.sh SOURCE_FOLDER
# "1.361e+04 GFLOP" is not how people write numbers: what is shown to them is written by plain() and with_error()
# of base/plain_number.h. This looks for formats that can turn to an exponent by themselves (%g, {:.3g}).
set -euo pipefail
root=$1
# Machines read CSV; the file that has the rule; a parameter count below 1000 of its unit, with its zeros.
allowed='src/rows/schema\.cpp:.*\{:\.6g\}.*value->get|src/base/plain_number\.cpp:|console/memory_table\.cpp:.*\{:#\.4g\}'
found() {
  (cd "$1" && grep -rnE --include='*.cpp' --include='*.h' '\{[0-9]*:[-+#.0-9{}]*g\}|"[^"]*%[-+#.0-9*]*g[^a-z]' src apps |
    grep -vE '^src/ops/' | grep -vE "$allowed") || true
}

planted=$(mktemp -d)
trap 'rm -rf "$planted"' EXIT
mkdir -p "$planted/src/studies" "$planted/apps"
printf 'std::string a(double x) { return fmt::format("{:.4g} ms", x); }\n' >"$planted/src/studies/a.cpp"
printf 'std::snprintf(text, 9, "%%.3g", x);\n' >"$planted/src/studies/b.cpp"
if [[ $(found "$planted" | wc -l) != 2 ]]; then
  echo "no_exponents.sh does not find what it looks for"
  exit 1
fi

all=$(found "$root")
if [[ -n $all ]]; then
  echo "$all"
  echo "write these with plain() or with_error() of base/plain_number.h"
  exit 1
fi
