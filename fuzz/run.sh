#!/usr/bin/env bash
# usage: fuzz/run.sh BUILD_FOLDER SECONDS
# Runs every fuzz target for that long, starting from the committed seeds and from what earlier runs found.
set -euo pipefail
build=$(cd "$1" && pwd) seconds=$2 here=$(cd "$(dirname "$0")" && pwd)
for source in "$here"/fuzz_*.cpp; do
  name=$(basename "$source" .cpp)
  corpus=$build/corpus/$name
  mkdir -p "$corpus"
  folders=("$corpus")
  [[ -d $here/corpus/$name ]] && folders+=("$here/corpus/$name")
  log=$build/$name.log
  # A crash leaves its input in the build folder; turned into a seed, it stays tested.
  if "$build/$name" -max_total_time="$seconds" -timeout=5 -rss_limit_mb=2048 -max_len=4096 \
    -artifact_prefix="$build/$name-" "${folders[@]}" >"$log" 2>&1; then
    echo "$name: $(grep -E '^Done' "$log" || tail -1 "$log")"
  else
    tail -40 "$log"
    echo "$name: FAILED; the input is in $build/$name-*, the whole log in $log"
    exit 1
  fi
done
