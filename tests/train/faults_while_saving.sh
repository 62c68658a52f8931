#!/usr/bin/env bash
# usage: faults_while_saving.sh KILN kill|fail
#        faults_while_saving.sh KILN_TESTS kill|fail ranks
#
# Resumes a small run, which trains one step and saves, again and again; the N-th system call of each kind that touches
# the run's folder kills the process (kill) or returns an error (fail), for every N there is. Afterwards the run must always
# resume, from the checkpoint before or the one after, and end with the same bytes. Where an old checkpoint cannot be
# removed the run only warns. 77: strace cannot be used here.
set -euo pipefail
kiln=$1 mode=$2 ranks=${3:-}
command -v strace >/dev/null || { echo "strace is not here"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
strace -qq -o /dev/null -e inject=fsync:signal=SIGKILL:when=1 true 2>/dev/null || { echo "strace may not trace here"; exit 77; }
# Stops at the calls that are watched alone, which makes a run faster. Signals cannot be injected so.
quick=()
! strace --seccomp-bpf -f -qq -o /dev/null -e trace=fsync true 2>/dev/null || quick=(--seccomp-bpf)

printf 'the cat sat on the mat and the dog sat on the log %s\n' {1..60} >"$work/text"
train() { # STEPS FOLDER
  if [[ -n $ranks ]]; then # two sharded ranks, threads of one process, with collective saves
    KILN_FAULT_RUN=$2 KILN_FAULT_STEPS=$1 "${trace[@]}" "$kiln" \
      --gtest_filter=ShardedCheckpoint.AStepOfTheFaultLoop >"$work/out" 2>"$work/err"
    return
  fi
  "${trace[@]}" "$kiln" train --text "$work/text" --size nano --batch 1 --context 16 --save-every 1 --keep 2 --threads 1 --sample-tokens 0 \
    --steps "$1" --lr 1e-3 --min-lr 1e-3 --warmup 0 --out "$2" --json >"$work/out" 2>"$work/err"
}
fail() {
  echo "$*" >&2
  cat "$work/err" "$work/out" >&2
  exit 1
}
bytes() { cat "$1"/checkpoints/step-00000003/{model,optimizer}.safetensors | cksum; }

trace=()
train 2 "$work/two"
cp -r "$work/two" "$work/run"
train 3 "$work/run"
expected=$(bytes "$work/run")

# What becomes of the run after the fault in $trace: it resumes from step 2 or 3, and ends as it should.
go_on() { # NAME
  trace=()
  train 3 "$work/run" || fail "$1: the run cannot be resumed"
  local now
  now=$(grep -o '"steps_now": [0-9]*' "$work/out" | grep -o '[0-9]*$')
  ((now <= 1)) || fail "$1: $now steps were lost"
  [[ $(bytes "$work/run") == "$expected" ]] || fail "$1: other bytes at the end"
  [[ $(ls "$work/run/checkpoints") == $'latest\nstep-00000002\nstep-00000003' ]] ||
    fail "$1: left behind: $(ls "$work/run/checkpoints")"
  # What counted as done must be there.
  ((status != 0 || now == 0)) || fail "$1: exit 0, and step 3 was not saved"
}

# Which calls of a kind touch the run's folder: their numbers, counted in each thread as strace counts them. Most others
# are the loader's, and the system's files.
numbers_of() { # SYSCALL
  rm -rf "$work/run"
  cp -r "$work/two" "$work/run"
  trace=(strace "${quick[@]}" -f -y -qq -o "$work/trace" -e "trace=$1")
  train 3 "$work/run" || fail "$1: exit $? without a fault"
  sed 's/ *<unfinished.*//; /resumed>/d' "$work/trace" |
    awk -v run="$work/run" -v call=" $1(" 'index($0, call) { n = ++count[$1]; if (index($0, run)) print n }' | sort -nu
}

points=0
try_all() { # SYSCALL FAULT
  local n numbers
  numbers=$(numbers_of "$1")
  for n in $numbers; do
    rm -rf "$work/run"
    cp -r "$work/two" "$work/run"
    if [[ $2 == signal=* ]]; then trace=(strace); else trace=(strace "${quick[@]}"); fi
    trace+=(-f -qq -o "$work/trace" -e "trace=$1" -e "inject=$1:$2:when=$n")
    status=0
    train 3 "$work/run" 2>/dev/null || status=$?  # the shell's own word on a killed process
    if ! grep -qE 'INJECTED|killed by SIGKILL' "$work/trace"; then
      ((status == 0)) || fail "$1 $n: exit $status without a fault"
      continue
    fi
    if [[ $mode == fail ]]; then
      ((status <= 1)) || fail "$1 $n: exit $status"
      ((status == 0)) || grep -q '^kiln: ' "$work/err" || fail "$1 $n: exit 1 without a word"
      ! compgen -G "$work/run/checkpoints/*.tmp*" >/dev/null || fail "$1 $n: left behind a temporary"
      if [[ $1 == unlink* || $1 == rmdir ]]; then
        ((status == 0)) || fail "$1 $n: exit $status, and only an old checkpoint could not be removed"
        [[ -n $ranks || ! -e $work/run/checkpoints/step-00000001 ]] ||
          grep -q 'cannot remove the old checkpoint' "$work/err" || fail "$1 $n: no warning"
        [[ -e $work/run/checkpoints/step-00000003/manifest.json ]] || fail "$1 $n: the new checkpoint is gone"
        [[ ! -e $work/run/checkpoints/step-00000001 ]] || purges=$((purges + 1))
      fi
    fi
    go_on "$1 $n"
    points=$((points + 1))
  done
  [[ $numbers ]] || echo "no $1 in a save"
}

purges=0
if [[ $mode == kill ]]; then
  for call in pwrite64 write fsync rename mkdir unlink unlinkat rmdir openat; do try_all "$call" signal=SIGKILL; done
else
  for call in pwrite64 write mkdir; do try_all "$call" error=ENOSPC; done
  for call in fsync rename unlink unlinkat rmdir; do try_all "$call" error=EIO; done
  ((purges >= 3)) || fail "only $purges failures of a purge"
fi
((points >= 40)) || fail "only $points faults: does this system save by other calls?"
echo "$points faults ($mode), each survived"
