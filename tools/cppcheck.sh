#!/usr/bin/env bash
# usage: tools/cppcheck.sh JOBS [FOLDER...]
# cppcheck over the sources (src apps tests/support fuzz without names of folders). What it does not understand is left out
# with the reason. A mistake is planted first, which must be found; 77: cppcheck is not here.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=$1
shift
folders=("$@")
((${#folders[@]})) || folders=(src apps fuzz)
command -v cppcheck >/dev/null || { echo "skipped: cppcheck is not here"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# unknownMacro, missingInclude: system headers are not read. internalAstError, syntaxError: C++20 that it does not parse.
# accessMoved of options.h: it takes x(std::move(text)).value() for a use of text. Style is .clang-tidy's.
check=(cppcheck --std=c++20 --language=c++ --enable=warning,portability --inline-suppr --error-exitcode=9 --quiet -j "$jobs"
  --suppress=missingIncludeSystem --suppress=missingInclude --suppress=unknownMacro --suppress=internalAstError
  --suppress=syntaxError --suppress=accessMoved:src/base/options.h --suppress=preprocessorErrorDirective --suppress=normalCheckLevelMaxBranches -I src -I apps)
printf 'int f(int n) { int a[4]; return n > 9 ? a[9] : a[0]; }\n' >"$work/planted.cpp"
status=0
"${check[@]}" "$work/planted.cpp" >/dev/null 2>&1 || status=$?
((status == 9)) || { echo "cppcheck does not find a planted mistake"; exit 1; }
"${check[@]}" "${folders[@]}"
echo "cppcheck: $(find "${folders[@]}" -name '*.cpp' | wc -l) files, nothing found"
