#!/usr/bin/env bash
# usage: every_suite_has_an_entry.sh KILN_TESTS FILTERS
# Fails when the test program holds a test that none of the ctest filters (one a line) selects.
set -euo pipefail
tests=$1 filters=$2

list() { "$tests" --gtest_list_tests "--gtest_filter=$1" | sed 's/ *#.*//' |
  awk '/^[^ ]/ { suite = $1; next } /^  / { print suite $1 }'; }

selected=$(while IFS= read -r filter; do list "$filter"; done <"$filters" | sort -u)
missing=$(comm -23 <(list '*' | sort -u) <(printf '%s\n' "$selected"))
if [[ -n $missing ]]; then
  echo "these tests are in no ctest entry; write TEST(Suite, at the start of a line, or teach cmake/KilnTests.cmake:"
  echo "$missing"
  exit 1
fi
