#!/usr/bin/env bash
# usage: measure_h200.sh OUT [PART...]
#
# Measures the tables of docs/results that have their rows beside them, on one GPU, with the peers in the same run. Parts:
#   step       whole training steps beside PyTorch's, size by size, the two programs in turns
#   attention  attention's kernels beside cuDNN's and FlashAttention-2's, table by table
#   ablate     the optimizations one by one and added up
# OUT gets files of rows, what the machine is (facts.txt) and what was printed (log.txt); `tools/results.py take OUT KILN` makes
# pages of them. KILN (build-cuda/kiln), PYTHON (python3, with torch) and LIMIT (seconds a command, 400) can be set. A command
# that fails is named at the end, with status 1; the others run.
set -euo pipefail
cd "$(dirname "$0")/.."
(($# >= 1)) || { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2; }
out=$1
shift
parts=("$@")
((${#parts[@]})) || parts=(step attention ablate)
kiln=${KILN:-build-cuda/kiln} python=${PYTHON:-python3} limit=${LIMIT:-400}
[[ -x $kiln ]] || { echo "measure_h200.sh: there is no program $kiln: make cuda, or name it with KILN=" >&2; exit 3; }
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=()

# Runs a command under the limit, into the log and on the terminal.
run() {
  printf '\n$ %s\n' "$*" | tee -a "$out/log.txt"
  local status=0
  timeout -k 10 "$limit" "$@" > >(tee -a "$out/log.txt") 2>&1 || status=$?
  ((status == 0)) || failed+=("$* (status $status)")
}
# kiln's rows of one command go to the end of $out/NAME.
measure() {
  local name=$1 folder
  shift
  folder=$(mktemp -d "$work/XXXX")
  run "$kiln" "$@" --device cuda --out "$folder"
  [[ ! -f $folder/results.jsonl ]] || cat "$folder/results.jsonl" >>"$out/$name"
}
step() { # SIZE BATCH CTX VOCAB
  measure step.jsonl bench step --size "$1" --batch "$2" --ctx "$3" --vocab "$4" --dtype bf16 --preset optimized --steps 20
  run "$python" bench/peers/torch_step.py --sizes "$1" --batch "$2" --ctx "$3" --vocab "$4" --modes graph \
    --limit $((limit - 20)) --rows "$out/torch_step.jsonl"
}

{
  date -u +%FT%TZ
  "$kiln" doctor || true
  nvidia-smi || true
  cat /proc/loadavg
} >>"$out/facts.txt" 2>&1

for part in "${parts[@]}"; do
  case $part in
    step)
      for size in small medium large xl25 2.7b; do step $size 4 512 10000; done
      step small 32 1024 50304
      ;;
    attention)
      for table in steps tokens16k; do
        measure flash_$table.jsonl bench flash --table $table --variant auto --tune off
        run "$python" bench/peers/torch_attention.py --table $table --backends cudnn,fa2 --limit $((limit / 3)) \
          --rows "$out/torch_attention.jsonl"
      done
      ;;
    ablate) measure ablate.jsonl ablate --size small ;;
    *)
      echo "measure_h200.sh: there is no part '$part'; expected some of step, attention, ablate" >&2
      exit 2
      ;;
  esac
done
echo
wc -l "$out"/*.jsonl
if ((${#failed[@]})); then
  printf 'failed: %s\n' "${failed[@]}" >&2
  exit 1
fi
