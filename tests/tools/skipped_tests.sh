#!/usr/bin/env bash
# usage: skipped_tests.sh ROOT
# tools/skipped_tests.py counts what is skipped, in each form there is, and says when nothing was.
set -euo pipefail
script=$1/tools/skipped_tests.py
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/Testing/Temporary"
log=$work/Testing/Temporary/LastTest.log

entry() { # NAME RESULT: the output comes from stdin
  printf '1/9 Testing: %s\n1/9 Test: %s\nCommand: "x"\nOutput:\n-----\n' "$1" "$1"
  cat
  printf '<end of output>\nTest time =   0.05 sec\n-----\n%s\n"%s" end time: now\n\n' "$2" "$1"
}
expect() { # LINE
  grep -qxF -- "$1" "$work/out" || {
    echo "no line '$1' in:"
    cat "$work/out"
    exit 1
  }
}

echo '[  PASSED  ] 3 tests.' | entry base/a_test 'Test Passed.' >"$log"
python3 "$script" "$work" >"$work/out"
expect "skipped: none, in 1 entries"

{
  printf '/x/a_test.cpp:12: Skipped\nno GPU here\n/x/a_test.cpp:13: Skipped\nno GPU here\n[  PASSED  ] 0 tests.\n' |
    entry ops/a_test.gpu $'Test Pass Reason:\nSkip regular expression found in output.'
  printf '/x/b_test.cpp:9: Skipped\n\n[  PASSED  ] 4 tests.\n' | entry ops/b_test 'Test Passed.'
  printf 'looks around\nstrace is not here\n' | entry train/faults $'Test Pass Reason:\nSkip return code=77'
  printf 'test_a (m.A) ... skipped "no torch here"\nOK (skipped=1)\n' | entry python/a 'Test Passed.'
  printf 'rows: skipped: this CPU has no avx2\nrows: 0 of 0\n' | entry goldens/rows $'Test Pass Reason:\nSkip return code=77'
  printf 'skipped: completion in fish: fish is not installed\n' | entry cli/completions 'Test Passed.'
} >>"$log"
python3 "$script" "$work" >"$work/out"
expect "skipped: 7 of what 7 entries hold"
expect "     2  no GPU here   (ops/a_test.gpu)"
expect "     1  (no reason given)   (ops/b_test)"
expect "     1  strace is not here   (train/faults)"
expect "     1  no torch here   (python/a)"
expect "     1  this CPU has no avx2   (goldens/rows)"
expect "     1  fish is not installed   (cli/completions)"

rm "$log"
! python3 "$script" "$work" >"$work/out" 2>&1 || { echo "no log, and no complaint"; exit 1; }
echo "every form of a skipped test is counted"
