#!/usr/bin/env bash
# usage: fuzz/run.sh BUILD_FOLDER SECONDS|Nruns [JOBS]
# Runs every fuzz target for that long, or for so many executions ("1000000runs"; at most MOST_SECONDS each), JOBS of them at
# once, starting from the committed seeds and from what earlier runs found.
set -euo pipefail
build=$(cd "$1" && pwd) amount=$2 jobs=${3:-$(nproc)} here=$(cd "$(dirname "$0")" && pwd)
most=${MOST_SECONDS:-3600}
if [[ $amount == *runs ]]; then limits="-runs=${amount%runs} -max_total_time=$most"; else limits="-max_total_time=$amount"; fi

one() { # NAME
  local name=$1 corpus=$build/corpus/$1 log=$build/$1.log
  mkdir -p "$corpus"
  local folders=("$corpus")
  [[ -d $here/corpus/$name ]] && folders+=("$here/corpus/$name")
  # A crash leaves its input in the build folder; turned into a seed, it stays tested (corpus/README.md). No input may make
  # one allocation of more than 64 MiB; bounds.h has the tighter rule for all of them together.
  # shellcheck disable=SC2086
  if "$build/$name" $limits -timeout=5 -rss_limit_mb=2048 -malloc_limit_mb=64 -max_len=4096 \
    -artifact_prefix="$build/$name-" "${folders[@]}" >"$log" 2>&1; then
    echo "$name: $(grep -E '^Done' "$log" || tail -1 "$log")"
  else
    tail -40 "$log"
    echo "$name: FAILED; the input is in $build/$name-*, the whole log in $log"
    return 1
  fi
}
export -f one
export build here limits

began=$SECONDS
# 255 ends xargs at once.
for source in "$here"/fuzz_*.cpp; do basename "$source" .cpp; done |
  xargs -P "$jobs" -I{} bash -euo pipefail -c 'one {} || exit 255'
runs=$(sed -n 's/^Done \([0-9]*\) runs.*/\1/p' "$build"/fuzz_*.log)
awk -v seconds=$((SECONDS - began)) '{ n += $1; if (NR == 1 || $1 < least) least = $1 }
  END { printf "fuzz: %d targets, %d executions, at least %d of each, %d s, no crash\n", NR, n, least, seconds }' <<<"$runs"
