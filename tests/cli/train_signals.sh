#!/usr/bin/env bash
# usage: train_signals.sh KILN
# Ctrl-C, SIGTERM and a lost terminal end a run after its step, saved and with exit 0; a second signal ends it at once.
set -euo pipefail
kiln=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
printf 'the cat sat on the mat and the dog sat on the log %s\n' {1..200} >"$work/text"
fail() {
  echo "$*" >&2
  cat "$work/err" "$work/out" >&2
  exit 1
}
begin() { # FOLDER OPTIONS...: in the background, until its first steps are in the metrics
  local folder=$1 before=0
  [[ ! -e $folder/metrics.jsonl ]] || before=$(wc -l <"$folder/metrics.jsonl")
  # A shell without job control starts background jobs with SIGINT ignored; a program cannot tell that from "do not
  # disturb", so it is switched back.
  (trap - INT; exec "$kiln" train --text "$work/text" --steps 1000000 --save-every 0 --threads 1 --json --out "$@" \
    >"$work/out" 2>"$work/err") &
  process=$!
  for _ in {1..600}; do
    [[ -e $folder/metrics.jsonl && $(wc -l <"$folder/metrics.jsonl") -gt $before ]] && return
    kill -0 "$process" 2>/dev/null || fail "ended before its first step"
    sleep 0.1
  done
  fail "no step within a minute"
}
end() { # EXPECTED STATUS
  local status=0
  wait "$process" || status=$?
  ((status == $1)) || fail "exit $status, expected $1"
}
steps() { grep -o '"steps": [0-9]*' "$work/out" | grep -o '[0-9]*$'; }

quick=(--size nano --batch 1 --context 16)
last=0
for signal in INT TERM HUP; do # three parts of one run
  begin "$work/run" "${quick[@]}"
  kill -$signal "$process"
  end 0
  (($(steps) > last)) || fail "SIG$signal: no step was done"
  last=$(steps)
  [[ -e $work/run/checkpoints/step-$(printf %08d "$last")/manifest.json ]] || fail "SIG$signal: step $last was not saved"
done
[[ $(wc -l <"$work/run/metrics.jsonl") -ge $last ]] || fail "metrics.jsonl lacks steps"

slow=(--size tiny --batch 16 --context 256 --held-out 0) # a step of seconds, so that the second signal comes inside one
for signal in INT:130 TERM:143; do
  "$kiln" train --text "$work/text" --steps 1 --threads 1 --fresh --out "$work/slow" "${slow[@]}" >/dev/null 2>&1
  begin "$work/slow" "${slow[@]}"
  kill -${signal%:*} "$process"
  sleep 0.1
  kill -${signal%:*} "$process"
  end "${signal#*:}"
  [[ -e $work/slow/checkpoints/step-00000001/manifest.json ]] || fail "the checkpoint before is gone"
done
