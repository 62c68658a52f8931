#!/usr/bin/env bash
# usage: tools/tidy.sh BUILD_FOLDER JOBS
# clang-tidy on every .cpp of the build. A file that was clean is not looked at again until something it includes, the
# way it is compiled or a .clang-tidy changes: all of them take half an hour on two cores, a change of a few a minute.
set -euo pipefail
build=$(cd "$1" && pwd) jobs=$2
passed=${KILN_TIDY_PASSED:-$build/tidy-passed}
mkdir -p "$passed"

# Named by what the result depends on: the text after the preprocessor, the checks requested, the tool.
tool=$(clang-tidy-19 --version | sha256sum)

# The checks of a file: those of its folder and of all above it.
checks_for() {
  local folder=$1
  while folder=${folder%/*} && [[ -n $folder ]]; do
    [[ ! -e $folder/.clang-tidy ]] || cat "$folder/.clang-tidy"
    [[ ! -e $folder/CMakePresets.json ]] || break
  done
}

check_one() {
  local file=$1 command=$2 key= log
  # Comments stay (-C): NOLINT is one. So do line markers, for a header's name decides whether it is looked at.
  if key=$(set -o pipefail; cd "$build"; eval "${command/ -c / -E -C } -o -" 2>/dev/null |
    sed "s|$PWD|.|g; s|${PWD%/*}/||g" | { echo "$tool ${command//${PWD%/*}\//}"; checks_for "$file"; cat; } | sha256sum); then
    key=$passed/${key%% *}
    [[ ! -e $key ]] || return 0
  fi
  # The commands are g++'s: its precompiled headers and the names of its warnings mean nothing to clang.
  if log=$(clang-tidy-19 -quiet -p "$build" --extra-arg=-Wno-ignored-gch --extra-arg=-Wno-unknown-warning-option \
    "$file" 2>&1); then
    [[ -z $key ]] || touch "$key"
    return 0
  fi
  echo "$log"
  return 1
}
export -f check_one checks_for
export build passed tool

jq -r '.[] | select(.file | endswith(".cpp")) | [.file, (.command | sub(" -o [^ ]+"; ""))] | @tsv' \
  "$build/compile_commands.json" | tr '\n\t' '\0\0' |
  xargs -0 -n2 -P"$jobs" bash -c 'check_one "$1" "$2"' check_one
echo "clang-tidy: $(ls "$passed" | wc -l) results cached in $passed"
