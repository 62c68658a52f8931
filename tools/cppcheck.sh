#!/usr/bin/env bash
# usage: tools/cppcheck.sh JOBS [FOLDER...]
# cppcheck over the sources (src apps fuzz without names of folders); style is .clang-tidy's. What it takes for a mistake and is
# none stands in cppcheck_suppressions.txt. A mistake is planted first, which must be found; 77: cppcheck is not here.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=$1
shift
folders=("$@")
((${#folders[@]})) || folders=(src apps fuzz)
command -v cppcheck >/dev/null || { echo "skipped: cppcheck is not here"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
check=(cppcheck --std=c++20 --language=c++ --enable=warning,portability --inline-suppr --error-exitcode=9 --quiet -j "$jobs"
  --suppressions-list=tools/cppcheck_suppressions.txt -I src -I apps)
printf 'int f(int n) { int a[4]; return n > 9 ? a[9] : a[0]; }\n' >"$work/planted.cpp"
status=0
"${check[@]}" "$work/planted.cpp" >/dev/null 2>&1 || status=$?
((status == 9)) || { echo "cppcheck does not find a planted mistake"; exit 1; }
"${check[@]}" "${folders[@]}"
echo "cppcheck: $(find "${folders[@]}" -name '*.cpp' | wc -l) files, nothing found"
