#!/usr/bin/env bash
# usage: kiln_run.sh path/to/kiln
# kiln run as a user sees it: the hello world, who prints what, and what is reported when a rank dies, hangs, or is missing.
set -uo pipefail
kiln=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

fail() {
  echo "FAILED: $1" >&2
  sed 's/^/    /' "$work/out" "$work/err" >&2
  failures=$((failures + 1))
}
run() {
  "$kiln" "$@" >"$work/out" 2>"$work/err" </dev/null
  status=$?
}
expect_status() { [[ $status == "$1" ]] || fail "$2: status $status, expected $1"; }
expect_line() { grep -qE -- "$1" "$work/$2" || fail "no line '$1' in std$2"; }
one_line_of_errors() { [[ $(grep -c '^kiln: ' "$work/err") == 1 ]] || fail "$1: not one line of error"; }
export TEST_RUN=$work  # by which ranks of this test are told from those of others
# "PID RANK" of each process that is a rank of `kiln $1` (a pattern), by rank.
ranks_of() {
  local p
  pgrep -f "$kiln $1" | while read -r p; do
    [[ $(readlink "/proc/$p/exe" 2>/dev/null) == "$(readlink -f "$kiln")" ]] || continue
    tr '\0' '\n' <"/proc/$p/environ" 2>/dev/null >"$work/environ"
    grep -qxF "TEST_RUN=$work" "$work/environ" && sed -n "s/^OMPI_COMM_WORLD_RANK=/$p /p" "$work/environ"
  done | sort -k2n
}
# Until both ranks are there, into ${ranks[@]}: what is done to ranks that are not there yet would show nothing.
wait_for_ranks() {
  local i
  for ((i = 0; i < 300; ++i)); do
    mapfile -t ranks < <(ranks_of "$1")
    [[ ${#ranks[@]} == 2 ]] && return
    sleep 0.1
  done
  fail "two ranks of kiln $1 did not start"
  return 1
}
# They have a moment to go.
no_orphans() {
  local i left=
  for ((i = 0; i < 50; ++i)); do
    left=$(ranks_of "doctor --collectives")
    [[ -z $left ]] && return
    sleep 0.1
  done
  fail "$1: still running: $left"
}

for transport in mpi threads; do
  run run --nproc 4 --transport $transport -- doctor --collectives --json
  expect_status 0 "hello world over $transport"
  python3 - "$work/out" $transport <<'PY' || fail "the page of doctor --collectives over $transport"
import json, sys
page = json.load(open(sys.argv[1]))
assert page["passed"] is True and page["ranks"] == 4 and page["transport"] == sys.argv[2], page
assert len(page["hello"]) == 4
totals = [sum(h["before"][i] for h in page["hello"]) for i in range(3)]
assert all(h["after"] == totals for h in page["hello"]), page["hello"]
assert all(c["right"] for c in page["checks"]) and len(page["checks"]) > 30
PY
  [[ -s $work/err ]] && fail "something was said on stderr over $transport"
done

# The same bits from one process and from several: weights and moments, file by file.
canonical() { echo train --size micro --steps 3 --batch 4 --context 32 --threads 1 --canonical --out "$work/$1"; }
tensors() { (cd "$work/$1/checkpoints/step-00000003" && sha256sum ./*.safetensors); }
run $(canonical one)
expect_status 0 "train --canonical"
for each in 2:fsdp 2:zero2 4:ddp:bucketed 4:zero1; do
  rm -rf "$work/several"
  run run --nproc "${each%%:*}" --transport mpi -- $(canonical several) --strategy "${each#*:}"
  expect_status 0 "train --canonical on $each"
  [[ $(tensors one) == "$(tensors several)" && -n $(tensors one) ]] || fail "$each ends in other bits than one process"
done

# kill -9, at each rank: within 5 s all are down, and one line says who it was.
for victim in 0 1; do
  KILN_COLLECTIVES_REPEAT=100000 "$kiln" run --nproc 2 -- doctor --collectives >"$work/out" 2>"$work/err" </dev/null &
  launcher=$!
  wait_for_ranks "doctor --collectives" || { kill $launcher; wait $launcher; continue; }
  sleep 1.$((RANDOM % 9))
  pid=${ranks[$victim]%% *}
  begun=$(date +%s%N)
  kill -9 "$pid"
  wait $launcher
  status=$?
  took=$((($(date +%s%N) - begun) / 1000000))
  expect_status 1 "rank $victim killed"
  expect_line "^kiln: rank $victim \(pid $pid on .*\) was ended by signal 9 \(Killed\) (in|after|before) .+" err
  one_line_of_errors "rank $victim killed"
  ((took < 5000)) || fail "the job was down after $took ms"
  no_orphans "rank $victim killed"
done

# kill -9 of any rank at any moment of a run leaves one line, and a checkpoint from which the same command resumes: to the
# bits of an undisturbed run.
long=(train --size nano --steps 300 --batch 4 --context 32 --threads 1 --save-every 10 --canonical)
run "${long[@]}" --out "$work/calm"
expect_status 0 "an undisturbed run"
# Each is killed at a step of its third of the run: it is always under way, and there is work left.
step_now() { grep -o '"step":[0-9]*' "$work/harried/metrics.jsonl" 2>/dev/null | tail -1 | grep -o '[0-9]*$' || echo 0; }
after=0
for strategy in fsdp zero2 ddp:bucketed; do
  victim=$((RANDOM % 2)) goal=$((after + 11 + RANDOM % 60))
  "$kiln" run --nproc 2 -- "${long[@]}" --out "$work/harried" --strategy $strategy >"$work/out" 2>"$work/err" </dev/null &
  launcher=$!
  wait_for_ranks "train .*harried" || { kill $launcher; wait $launcher; continue; }
  for ((i = 0; i < 3000; ++i)); do
    (($(step_now) >= goal)) && break
    sleep 0.02
  done
  kill -9 "${ranks[$victim]%% *}" || fail "rank $victim of a run with $strategy was gone at step $(step_now), before it was killed"
  wait $launcher
  status=$?
  expect_status 1 "rank $victim of a run with $strategy killed"
  expect_line "^kiln: rank $victim( \(pid [0-9]+ on .*\))? was ended by signal 9 \(Killed\) (in step [0-9]+ )?(in|after|before) .+" err
  one_line_of_errors "rank $victim of a run killed"
  after=$((after + 80))
  (($(step_now) < 300)) || fail "the run with $strategy was through before its rank was killed"
done
run run --nproc 2 -- "${long[@]}" --out "$work/harried" --strategy zero1
expect_status 0 "a run that resumes after kills"
last() { (cd "$work/$1/checkpoints/step-00000300" && sha256sum ./*.safetensors); }
[[ -n $(last calm) && $(last calm) == "$(last harried)" ]] || fail "a run that was killed ends in other bits"

# A rank that is stopped is named, with the collective, within the time-out.
KILN_COLLECTIVES_REPEAT=100000 "$kiln" run --nproc 2 --comm-timeout 2 -- doctor --collectives >"$work/out" 2>"$work/err" </dev/null &
launcher=$!
wait_for_ranks "doctor --collectives"
pid=${ranks[1]%% *}
sleep 1
kill -STOP "$pid"
wait $launcher
status=$?
expect_status 1 "rank 1 stopped"
expect_line "^kiln: rank 0 \(pid [0-9]+ on .*\): \[.*\] rank 0 waited 2000 ms; (missing|not done): rank 1; silent: rank 1 \(pid $pid on .*\), stopped, (in|after|before) " err
one_line_of_errors "rank 1 stopped"
no_orphans "rank 1 stopped"

# A signal to the launcher reaches the ranks.
KILN_COLLECTIVES_REPEAT=100000 "$kiln" run --nproc 2 -- doctor --collectives >"$work/out" 2>"$work/err" </dev/null &
launcher=$!
wait_for_ranks "doctor --collectives"
kill -TERM $launcher
wait $launcher
no_orphans "SIGTERM to the launcher"

# So does its sudden end.
KILN_COLLECTIVES_REPEAT=100000 "$kiln" run --nproc 2 -- doctor --collectives >"$work/out" 2>"$work/err" </dev/null &
launcher=$!
wait_for_ranks "doctor --collectives"
kill -KILL $launcher
wait $launcher 2>/dev/null
no_orphans "SIGKILL to the launcher"

# What cannot be started is reported once, before anything starts.
run run --nproc 2 -- doctor --colectives
expect_status 2 "a mistyped option"
one_line_of_errors "a mistyped option"
run run --nproc 2
expect_status 2 "no command"
run run --nproc 2 -- sizes
expect_status 2 "a command without ranks"
expect_line "no command of several ranks" err
run run --json --nproc 1 -- train --size nano --steps 1 --batch 2 --context 16 --out "$work/single"
expect_status 0 "a run of one rank"
expect_line '"ranks": 1' out
run run --nproc 0 -- doctor
expect_status 2 "no ranks"
run run --nproc 2 --transport smoke -- doctor
expect_status 2 "an unknown transport"
KILN_MPIRUN=/nowhere/mpirun run run --nproc 2 -- doctor --collectives
expect_status 3 "no mpirun"
expect_line '^kiln: mpirun was not found' err
one_line_of_errors "no mpirun"
RANK=1 run doctor --collectives
expect_status 1 "half of torchrun's variables"
expect_line "RANK is set and WORLD_SIZE is not" err

exit $((failures > 0))
