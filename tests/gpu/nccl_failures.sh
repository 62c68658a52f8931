#!/usr/bin/env bash
# usage: nccl_failures.sh path/to/kiln
# Ranks of NCCL that share a GPU, and what is reported when one of them is killed or stopped in the middle of training. Status 0:
# all as expected; 1: not so; 3: no GPU or no NCCL here, said in one line.
set -uo pipefail
kiln=$(readlink -f "$1")
work=$(mktemp -d)
launcher=
trap '[[ -z $launcher ]] || kill "$launcher" 2>/dev/null; rm -rf "$work"' EXIT
failures=0

fail() {
  echo "FAILED: $1" >&2
  sed 's/^/    /' "$work/err" | tail -5 >&2
  failures=$((failures + 1))
}
nvidia-smi -L >/dev/null 2>&1 || { echo "nccl_failures: no GPU here (nvidia-smi -L finds none)" >&2; exit 3; }
"$kiln" run --nproc 2 --transport nccl -- doctor --collectives --device cuda >"$work/out" 2>"$work/err"
status=$?
[[ $status != 3 ]] || { sed 's/^kiln: /nccl_failures: /' "$work/err" | head -1 >&2; exit 3; }
[[ $status == 0 ]] || fail "doctor --collectives over NCCL: status $status"

pid_of() {  # the process of a rank, once the run has come to its tenth step
  local p i
  for ((i = 0; i < 600; ++i)); do
    grep -qE '^\[rank 0\] step +[0-9]{2,}/' "$work/err" && break
    kill -0 "$launcher" 2>/dev/null || return
    sleep 0.1
  done
  for p in $(pgrep -f "$kiln train .*$work"); do
    [[ $(readlink "/proc/$p/exe" 2>/dev/null) == "$kiln" ]] &&
      tr '\0' '\n' <"/proc/$p/environ" 2>/dev/null | grep "^OMPI_COMM_WORLD_RANK=$1\$" >/dev/null && echo "$p" && return
  done
}

for each in KILL:ddp:bucketed STOP:fsdp STOP:zero1; do
  signal=${each%%:*} strategy=${each#*:}
  : >"$work/err"
  "$kiln" run --nproc 2 --transport nccl --comm-timeout 5 -- train --size nano --steps 1000000 --batch 8 --context 64 \
    --strategy "$strategy" --device cuda --sample-tokens 0 --out "$work/run" >"$work/out" 2>"$work/err" </dev/null &
  launcher=$!
  pid=$(pid_of 1)
  if [[ -z $pid ]]; then
    fail "rank 1 did not come to its tenth step with $strategy"
    kill "$launcher" 2>/dev/null
    wait "$launcher"
    continue
  fi
  begun=$SECONDS
  kill "-$signal" "$pid"
  wait "$launcher"
  status=$?
  launcher=
  said=$(grep '^kiln: ' "$work/err")
  [[ $status == 1 ]] || fail "$signal of rank 1 with $strategy: status $status"
  case $signal in
    KILL) expected="^kiln: rank 1 \(pid $pid on .*\) was ended by signal 9 \(Killed\) in step [0-9]+ (in|after) .+$" ;;
    STOP) expected="^kiln: rank 0 \(pid [0-9]+ on .*\): \[.+\] .* waited 5000 ms.*; (silent: rank 1 \(pid $pid on .*\), stopped, in step [0-9]+ (in|after) .+|missing: rank 1.*)$" ;;
  esac
  [[ $(wc -l <<<"$said") == 1 && $said =~ $expected ]] || fail "$signal of rank 1 with $strategy said '$said'"
  ((SECONDS - begun < 20)) || fail "$signal of rank 1 with $strategy was noticed after $((SECONDS - begun)) s"
  sleep 1
  [[ -z $(pgrep -f "$kiln train .*$work") ]] || fail "ranks are left after $signal with $strategy"
  rm -rf "$work/run"
  echo "$signal of rank 1 with $strategy, after $((SECONDS - begun)) s: $said"
done
exit $((failures > 0))
