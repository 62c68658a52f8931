#!/usr/bin/env bash
# usage: usage.sh KILN
# Runs the program as a user would, wrongly and rightly: exit status, what is on stdout, how many lines of stderr.
set -euo pipefail
kiln=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

fail() {
  echo "FAILED: $1"
  sed 's/^/  stdout: /' "$work/out" | head -5
  sed 's/^/  stderr: /' "$work/err" | head -5
  failures=$((failures + 1))
}

# expect STATUS STDERR_LINES PATTERN ARGS...: PATTERN must match stderr, or stdout where STDERR_LINES is 0.
expect() {
  local status=$1 lines=$2 pattern=$3 got=0 where=err
  shift 3
  "$kiln" "$@" >"$work/out" 2>"$work/err" || got=$?
  [[ $got == "$status" ]] || fail "kiln $*: exit $got, expected $status"
  [[ $(wc -l <"$work/err") == "$lines" ]] || fail "kiln $*: stderr should have $lines line(s)"
  [[ $lines == 0 ]] && where=out
  grep -qE -- "$pattern" "$work/$where" || fail "kiln $*: std$where lacks '$pattern'"
  if [[ $status == 2 && -s $work/out ]]; then fail "kiln $*: wrong usage wrote to stdout"; fi
}

expect 0 0 '^Usage: kiln COMMAND' --help
expect 0 0 '^Usage: kiln COMMAND'
expect 0 0 '^kiln [0-9]+\.[0-9]+\.[0-9]+ \(' --version
expect 0 0 'Example:' doctor --help
expect 0 0 '^Usage: kiln ops' help ops
expect 0 0 '^fma ' doctor
expect 0 0 '^\{' doctor --json --quick
expect 0 0 '^\{' doctor --json --quick --seed 7 --device cpu --out "$work/runs"

expect 2 2 "^kiln: unknown command 'a; b\\\\x1b'$" $'a\nb\e'
expect 3 2 '^kiln: cuda:9999 is not available: ' doctor --quick --device cuda:9999
expect 3 2 '^kiln: cuda:9999 is not available: ' doctor --quick --device gpu:9999

expect 0 0 'Example:' profile --help
expect 1 2 '^kiln: cannot write /dev/null/runs/results.jsonl' profile --device cpu --out /dev/null/runs
expect 0 0 '"trace_file": ' profile --size nano --ctx 16 --steps 1 --device cpu --json --out "$work/profiled"

expect 0 0 'Example:' tune --help
expect 3 2 '^kiln: nothing to tune on cpu' tune --size small --device cpu --out "$work/tuned"
expect 0 0 'attention +tiles of attention' tune --help
expect 0 0 'kiln tune attention --table steps --device cuda' tune attention --help
expect 3 2 '^kiln: nothing to tune on cpu' tune attention --device cpu --out "$work/tuned"
expect 3 2 '^kiln: cuda:9999 is not available: ' tune attention --device cuda:9999 --out "$work/tuned"
expect 0 0 '^64 x 128, 2 stages +default +89$' \
  tune attention --device meta:cuda --out "$work/tuned"
grep -q '^4 x 12 heads x 512 x 64 causal packed bf16, flash_hopper$' "$work/out" || fail 'kiln tune attention: no table of the first shape'
expect 0 0 '^\{' tune attention --table tokens16k --d 128 --full --json --device meta:cuda --out "$work/tuned"
expect 0 0 'causal fp16, flash$' tune attention --seq 300 --d 80 --dtype fp16 --variant flash --device meta:cuda
grep -q '^64 x 64' "$work/out" || fail 'kiln tune attention: no tiles of 64 x 64'
expect 2 1 '^kiln: --heads goes with --table grid; the cells of steps have their own$' tune attention --table steps --heads 3
expect 2 1 '^kiln: no cell of tokens16k is left by --d 72$' tune attention --table tokens16k --d 72
expect 3 1 '^kiln: nothing to tune: .*fp32: .*has no tiles to choose from$' tune attention --dtype fp32 --device meta:cuda
[[ ! -e $work/tuned ]] || fail 'kiln tune left a folder behind on the CPU'

expect 0 0 '^rms_norm ' ops
expect 0 0 '^  \* naive +cpu +available$' ops rms_norm --device cpu --variant rms_norm=naive
expect 0 0 '^    lt +cuda +runs on cuda, not on cpu$' ops linear --device meta
expect 0 0 '^\{' ops --json --device cpu
expect 0 0 'Example:' ops --help
expect 3 2 '^kiln: cuda:9999 is not available: ' ops --device cuda:9999
expect 3 2 "^kiln: \[linear\] variant 'lt' cannot run here: lt \(cuda\): runs on cuda, not on cpu$" \
  ops --device cpu --variant rms_norm=naive,linear=lt
[[ ! -s $work/out ]] || fail "kiln ops with a variant that cannot run: wrote to stdout"

expect 0 0 '^small +768 +3072 +12 +12 +64 +10000 +0.1286 B +1.92 ' sizes
expect 0 0 '^\{' sizes --json
expect 0 0 '^micro +128 ' sizes NANO,micro
expect 0 0 '^micro +128 ' sizes nano micro

expect 0 0 '^naive +forward ' bench op add --variant naive --shape rows=4,cols=8 --device cpu --threads 1 --out "$work/runs"
expect 0 0 '^\{' bench op matmul --variant naive --shape rows=4,in=3,out=5 --device cpu --json --out "$work/runs"
expect 0 0 '^op,variant,' bench op add --variant naive --shape rows=4 --shape cols=8 --device cpu --format csv --out "$work/runs"
[[ $(grep -c '"gate":"passed"' "$work/runs/results.jsonl") == 6 ]] || fail "kiln bench op: results.jsonl should have 6 rows"
expect 2 1 "^kiln: --pass is 'sideways'; expected one of: both, forward, backward, dgrad, wgrad$" bench op linear --pass sideways
expect 2 2 '^kiln: size rows is given twice$' bench op rms_norm --shape rows=2,rows=3
expect 3 2 '^kiln: \[attention\] .* has too many elements$' \
  bench op attention --shape batch=2147483648,heads=2147483648 --device cpu --out "$work/full"
expect 3 2 '^kiln: \[rms_norm\] .* needs .* GiB of host memory' \
  bench op rms_norm --shape rows=2147483648,cols=2147483648 --device cpu --out "$work/full"
expect 3 2 '^kiln: \[batched_matmul\] .*( GiB of host memory|than can be counted)' \
  bench op batched_matmul --shape heads=1,m=2147483648,n=2147483648,k=1 --device cpu --out "$work/full"
expect 3 2 '^kiln: cuda:9999 is not available: .' bench op rms_norm --device cuda:9999
expect 3 1 '^kiln: \[linear\] nothing could be timed: lt \(cuda\): runs on cuda, not on cpu$' \
  bench op linear --variant lt --shape rows=2,in=2,out=2 --device cpu --out "$work/runs"
expect 1 2 '^kiln: cannot write /dev/null/x/results.jsonl: ' \
  bench op add --shape rows=2,cols=2 --device cpu --out /dev/null/x
[[ ! -s $work/out ]] || fail "kiln bench op: measured before it found that results cannot be stored"

step=(bench step --batch 2 --ctx 8 --warmup 1 --steps 2 --device cpu --threads 1)
stored=(--out "$work/steps")
expect 0 0 '^nano +bf16 +8 +optimized +passed +[0-9]' "${step[@]}" --size nano "${stored[@]}"
expect 0 0 '^\{' "${step[@]}" --size nano --json --dtype fp32 --preset both --mode forward,full --split "${stored[@]}"
expect 0 0 '^size,mode,' "${step[@]}" --format csv --size NANO "${stored[@]}"
expect 0 0 '^\| size \| precision ' "${step[@]}" --size nano --format md "${stored[@]}"
[[ $(grep -c '"status":"ok"' "$work/steps/results.jsonl") == 7 ]] || fail "kiln bench step: results.jsonl should have 7 rows"
expect 3 2 "^kiln: --graph is 'on', and cpu cannot capture one$" "${step[@]}" --size nano --graph on
expect 3 2 '^kiln: cuda:9999 is not available: .' bench step --device cuda:9999
expect 2 2 '^kiln: --kernels is 5, and cpu runs ops without kernels$' "${step[@]}" --size nano --kernels 5
expect 1 2 '^kiln: nothing could be timed: 10b: it needs .* of memory; .* are available$' \
  bench step --size 10b --batch 4096 --ctx 4096 --device cpu --out "$work/steps"
grep -q 'OOM: .*needed: param .*largest batch that fits: ' "$work/out" || fail "kiln bench step: no row for what found no memory"

# Sweeps, and the forms of a page.
grid=("${step[@]}" --size nano --out "$work/grid")
expect 0 0 '^8 +fp32 ' bench step --batch 2 --warmup 1 --steps 2 --size nano --grid ctx=8,16 --grid dtype=fp32,bf16 \
  --device cpu --threads 1 --out "$work/grid"
grep -q '^ctx .*size=nano mode=full dtype=fp32 ' "$work/out" || fail "kiln bench step --grid: no scaling fit"
grep -q 'fp32 to bf16 (optimized)' "$work/out" || fail "kiln bench step --grid: fp32 and bf16 are not compared"
[[ $(grep -c '"cell":' "$work/grid/results.jsonl") == 4 ]] || fail "kiln bench step --grid: expected 4 stored rows"
for form in 'md:^\| size ' 'latex:^\\begin\{tabular\}' 'csv:^size,mode,' 'json:^\{' 'table:^size +precision '; do
  expect 0 0 "${form#*:}" "${grid[@]}" --format "${form%%:*}"
done
expect 0 0 '^variant +pass ' bench op add --shape rows=4,cols=8 --device cpu --format table --out "$work/grid"
expect 0 0 '^\\begin\{tabular\}' bench op add --shape rows=4,cols=8 --device cpu --format latex --out "$work/grid"
expect 0 0 'where it pays' bench op swiglu --grid rows=2..16 --shape cols=8 --device cpu --threads 1 --out "$work/grid"
expect 0 0 '^\\begin\{tabular\}' bench flash --seq 16 --d 8 --dtype fp32 --iters 2 --device cpu --format latex --out "$work/grid"
expect 0 0 '^off +' bench attention --grid causal=on,off --seq 16 --d 8 --batch 1 --iters 2 --device cpu --out "$work/grid"
expect 0 0 '^nano +2 +\(' bench warmup --size nano --batch 2 --ctx 8 --warmup 0,2 --steps 3 --device cpu --out "$work/grid"
grep -q '^excess of the first step' "$work/out" || fail "kiln bench warmup: the first step is not taken apart"
expect 0 0 '"steps_ms"' bench warmup --size nano --ctx 8 --warmup 1 --steps 3 --device cpu --json --out "$work/grid"
expect 3 1 '^kiln: variant=lt: \[linear\] nothing could be timed' \
  bench op linear --grid variant=lt --shape rows=2,in=2,out=2 --device cpu --out "$work/grid"
expect 2 2 "^hint: did you mean 'small'\?$" bench step --grid size=small,smal --device cpu --out "$work/grid"
expect 2 2 "^hint: did you mean 'ctx'\?$" bench step --grid ctxx=8 --device cpu --out "$work/grid"
expect 2 1 '^kiln: ctx is in --grid and given as --ctx too$' bench step --ctx 8 --grid ctx=8,16 --device cpu
expect 1 2 '^kiln: cannot write /dev/null/x/results.jsonl: ' bench step --size nano --grid ctx=8,16 --device cpu --out /dev/null/x
printf '{"torn' >>"$work/grid/results.jsonl"
expect 0 1 'the last line was cut off after 6 bytes and is removed$' "${grid[@]}"
expect 1 2 '^kiln: cannot write /dev/null/x/results.jsonl: ' "${step[@]}" --size nano --out /dev/null/x

cells=(--iters 2 --device cpu --threads 1 --out "$work/attention")
expect 0 0 '^fp32 +full +flash +2x1x24x8 +passed +forward ' bench attention --batch 2 --heads none --seq 24 --d 8 "${cells[@]}"
expect 0 0 '^memory before backward, naive, 1 x 2 heads of 8 fp32: .* B x seq \+ 8.0 B x seq\^2$' \
  bench attention --batch 1 --heads 2 --seq 24 --d 8 --causal --variant naive "${cells[@]}"
expect 0 1 '^kiln: warning: --impl is now --variant$' bench attention --impl naive --seq 8 --d 8 --device cpu --dry-run
expect 0 0 '^\{' bench flash --seq 16..64 --d 8 --dtype bf16 --variant auto --json "${cells[@]}"
expect 0 0 '^table,device,' bench flash --full --seq 16 --d 8 --dtype fp32 --format csv "${cells[@]}"
expect 0 0 '^\| dtype \| form ' bench flash --seq 16 --d 8 --dtype fp32 --variant all --format md "${cells[@]}"
expect 0 0 'TFLOP; roofline .* ms at 989 TFLOP/s of the datasheet, .* ms at the rate measured here$' \
  bench leaderboard flash --heads 2 --seq 40 --seconds 0.01 --warmup 0 --device cpu --threads 1 --out "$work/attention"
[[ $(grep -c '"gate":"passed"' "$work/attention/results.jsonl") == 34 ]] || fail "kiln bench flash: results.jsonl should have 34 rows"
expect 0 0 '^bf16 +causal packed +flash_hopper.* 4x32x512x80 +yes +18.8' bench flash --table steps --device meta:cuda
expect 0 0 'OOM: naive, .* by tensor: .*probs 16.00 GiB' \
  bench flash --table tokens16k --seq 16384 --d 64 --causal --device meta:cuda --memory 24GiB
expect 1 2 '^kiln: \[attention\] nothing could be timed: naive, .*: it needs ' \
  bench attention --batch 1 --seq 512 --d 8 --variant naive --memory 1MiB "${cells[@]}"
expect 3 1 '^kiln: \[attention\] nothing could be timed: flash, ' \
  bench attention --batch 1 --seq 16 --d 8 --dtype fp64 --variant flash "${cells[@]}"
expect 0 0 '^naive +forward ' bench op attention --variant naive --shape seq=8,heads=1 "${cells[@]:2}"
expect 2 2 '^kiln: kiln bench leaderboard needs the name of one: flash$' bench leaderboard
expect 2 1 '^kiln: no cell of steps is left by --seq 999$' bench flash --table steps --seq 999
expect 2 1 '^kiln: no cell of steps is left by --full$' bench flash --table steps --full
expect 3 2 '^kiln: cuda:9999 is not available: .' bench flash --device cuda:9999
expect 1 2 '^kiln: cannot write /dev/null/x/results.jsonl: ' bench attention --seq 8 --d 8 --device cpu --out /dev/null/x

ablate=(ablate --size nano --batch 1 --ctx 16 --steps 2 --warmup 1 --gate-steps 1 --device cpu --threads 1)
expect 1 2 '^kiln: there are no stored rows: ' report --out "$work/ablate"
expect 0 0 '^fused_rope +[0-9.]+ ' "${ablate[@]}" --only fused_rope --out "$work/ablate"
expect 0 0 '^cuda_graph: unavailable: cpu cannot capture a step' "${ablate[@]}" --only cuda_graph --out "$work/ablate"
expect 0 0 '^group,switch,status,gate,' "${ablate[@]}" --only prefetch --format csv --out "$work/ablate"
expect 0 0 '^\{' "${ablate[@]}" --only recompute --json --out "$work/ablate"
expect 1 2 '^kiln: alone bf16: the gate failed: logits are off by ' "${ablate[@]}" --only bf16 --tolerance 1e-6 --out "$work/ablate"
[[ $(grep -c '"command":"ablate"' "$work/ablate/results.jsonl") == 15 ]] || fail "kiln ablate: results.jsonl should have 15 rows"
expect 0 0 '^15 of 15 stored rows and the answers to .* questions are in .*/report.html; as Markdown in ' report --out "$work/ablate"
expect 0 0 '^\{' report --json --out "$work/ablate"
expect 1 2 '^kiln: cannot make the folder /dev/null/x/report: ' report --from "$work/ablate" --out /dev/null/x
expect 1 2 '^kiln: cannot write /dev/null/x/results.jsonl: ' "${ablate[@]}" --out /dev/null/x

expect 0 0 '^fp16 \+= fp16 +9\.95312500 +-0\.0469 +0\.0021 +9\.95312500 ' precision accumulate
expect 0 0 '^bf16 \+= bf16 +256\.0+ ' precision accumulate --value 1 --count 300
expect 0 0 '^\{' precision accumulate --json --seed 3 --runs 4
expect 0 0 'kiln precision accumulate --count' precision accumulate --help
expect 0 0 '^fc1 output +\[32, 10\] +fp32 +fp16 +bf16$' precision toymodel
expect 0 0 '^norm output +\[7, 10\] +fp32 +fp32 +fp32$' precision toymodel --batch 7 --in 3 --classes 2
expect 0 0 '^\{' precision toymodel --json
expect 0 0 'kiln precision toymodel --in' precision toymodel --help
expect 0 0 '^is fp32 still needed under bf16\? yes' precision layernorm
expect 0 0 '^\{' precision layernorm --json --width 33 --rows 2 --seed 1
expect 0 0 'kiln precision layernorm --width' precision layernorm --help
few="--tokens 65 --ranks 3 --steps 20 --width 99"
expect 0 0 '^pure-bf16 +bf16 +bf16 +2 ' precision accumulation $few
expect 0 0 '^weights +op +bf16 ' precision accumulation $few --device cpu
expect 0 0 '^\{' precision accumulation --json --batch 3 $few
expect 0 0 'kiln precision accumulation --tokens' precision accumulation --help

printf 'one line of text\nand another one\n' >"$work/text"
: >"$work/empty"
printf 'a\0b' >"$work/binary"
expect 0 0 '^tokenizer  byte, vocabulary 257' tokenize --text "$work/text" --out "$work/tokens"
[[ $(wc -c <"$work/tokens/train_000000.bin") == 1060 ]] || fail "kiln tokenize: wrong size of train_000000.bin"
expect 2 2 "^kiln: $work/tokens holds tokens already$" tokenize --text "$work/tokens" --out "$work/tokens3"
expect 1 2 ' already holds tokens$' tokenize --text "$work/text" --out "$work/tokens"
expect 0 0 '^\{' tokenize --text "$work/text" --train-bpe 260 --out "$work/tokens" --overwrite --json
expect 0 0 '^tokenizer  bpe, vocabulary 260' tokenize --text "$work/text" --tokenizer "$work/tokens" --out "$work/tokens2"
expect 0 0 'Example:' tokenize --help
expect 2 2 '^kiln: kiln tokenize needs --text$' tokenize
expect 1 2 "^kiln: there is no text $work/none$" tokenize --text "$work/none" --out "$work/t"
expect 1 1 "^kiln: $work/empty cannot be used as text: it is empty$" tokenize --text "$work/empty" --out "$work/t"
expect 1 1 'it is binary: a zero byte at offset 1$' tokenize --text "$work/binary" --out "$work/t"
expect 1 2 "^kiln: there is no tokenizer nowhere$" tokenize --text "$work/text" --tokenizer nowhere --out "$work/t"
expect 2 1 "^kiln: --train-bpe is '10k'; expected a whole number from 257 to 4000000$" \
  tokenize --text "$work/text" --train-bpe 10k --out "$work/t"
expect 2 1 '^kiln: --tokenizer and --train-bpe are both given' \
  tokenize --text "$work/text" --train-bpe 300 --tokenizer byte --out "$work/t"
expect 2 1 '^kiln: --special is given without --train-bpe' tokenize --text "$work/text" --special '<x>' --out "$work/t"
expect 2 2 "^hint: did you mean 'gpt2'\?$" tokenize --text "$work/text" --train-bpe 300 --pattern gtp2 --out "$work/t"
expect 2 1 "^kiln: --val-fraction is '2'; expected a number from 0 to 0.9$" \
  tokenize --text "$work/text" --val-fraction 2 --out "$work/t"
expect 1 1 '^kiln: cannot make the folder /dev/null/x: ' tokenize --text "$work/text" --out /dev/null/x

# Token files by themselves: their tokenizer beside them, or none.
trains() {
  "$kiln" train --size nano --steps 1 --batch 1 --ctx 8 "$@" >"$work/out" 2>"$work/err" || fail "kiln train $*"
}
trains --text "$work/tokens/train_000000.bin" --out "$work/shard"
[[ -s $work/shard/checkpoints/step-00000001/tokenizer.json ]] || fail "kiln train of a shard: the tokenizer beside it is not kept"
mkdir -p "$work/alone"
"$kiln" convert --size nano --vocab 100 --to "$work/few" >"$work/out" 2>"$work/err" || fail "kiln convert --vocab"
cp "$work/tokens/train_000000.bin" "$work/alone/x.bin"
trains --text "$work/alone/x.bin" --out "$work/shard2"
grep -q '^text .*/x.bin: [1-9][0-9]* training tokens' "$work/err" || fail "kiln train --text x.bin: no tokens"
trains --text "$work/alone" --out "$work/shard3"
"$kiln" eval --checkpoint "$work/shard2" --text "$work/alone/x.bin" --ctx 8 >"$work/out" 2>"$work/err" ||
  fail "kiln eval --text x.bin"
grep -q '^[0-9]* tokens in windows of 8, ' "$work/out" || fail "kiln eval --text x.bin: its bytes of text are not known"
expect 2 2 'holds tokens already; no vocabulary of 300 can be trained on them$' train --text "$work/alone/x.bin" --train-bpe 300
expect 1 2 ' has ids up to [0-9]+, the model in .* has 100 tokens$' eval --checkpoint "$work/few" --text "$work/alone/x.bin"
printf '\x93NUMPY nonsense' >"$work/alone/x.npy"
"$kiln" train --text "$work/alone/x.npy" --out "$work/shard4" >"$work/out" 2>"$work/err" && fail "kiln train --text x.npy: nonsense is taken"
grep -q '^kiln: .*/alone/x.npy' "$work/err" || fail "kiln train --text x.npy: the error does not name the file"

printf 'a text to learn from, long enough for a window or two of tokens; %s\n' {1..40} >"$work/text"
trains --text "$work/text" --train-bpe 100000 --out "$work/bpe"
grep -qE '^--train-bpe is 100000, and the text has no more pairs to merge after [0-9]+ tokens: ' "$work/err" ||
  fail "kiln train --train-bpe 100000: the smaller vocabulary is not said aloud"
expect 2 2 'only one of them' train --train-bpe 300 --tokenizer "$work/none.json"
expect 2 1 "^kiln: --steps is '-3'; expected a whole number of 1 or more" train --text "$work/text" --steps -3
expect 2 2 "^hint: did you mean 'pure-bf16'\?$" train --text "$work/text" --precision pure-bf15
expect 2 2 "^kiln: --recompute is 'every:0'; expected every:k" train --text "$work/text" --recompute every:0
expect 2 2 "^hint: did you mean 'swiglu'\?$" train --text "$work/text" --recompute plan:norms+swiglo
expect 2 2 "^kiln: --recompute is 'budget:lots'; expected budget:SIZE" train --text "$work/text" --recompute budget:lots
expect 2 2 '^kiln: no recompute policy brings this step below .*; the least is .* bytes\), by --recompute ' \
  calc memory --size nano --recompute budget:1MiB
expect 2 2 '^kiln: the recompute plan is for 9 blocks, and the model has 2$' \
  train --text "$work/text" --size nano --recompute plan:norms*9
expect 2 2 "^kiln: --fit chooses the recompute policy, and --recompute is 'block'$" \
  train --text "$work/text" --fit --recompute block
expect 2 2 "^kiln: --memory is '100'; expected 1MiB or more$" fit --memory 100
expect 2 1 "^kiln: --memory is 'lots'; expected a size like 5GB" fit --memory lots
expect 1 2 '^kiln: small does not fit into 100.00 MiB: one sequence of 512 tokens takes at least ' \
  fit --size small --memory 100MiB --device cpu
expect 2 2 "^hint: did you mean 'baseline'\?$" train --text "$work/text" --preset baselin
expect 2 2 "^hint: did you mean 'gate_up'\?$" train --text "$work/text" --variant gate_pu=split
expect 2 2 "^kiln: --strategy is 'dpd:flat'; expected one of: none, ddp:naive, " train --text "$work/text" --strategy dpd:flat
expect 2 2 '^kiln: --batch is 8 and --ranks is 3: the batch does not divide' \
  train --text "$work/text" --ranks 3 --strategy zero1
expect 2 2 '^kiln: --batch is 2 and --ranks is 3: some ranks would have no sequence$' \
  train --text "$work/text" --ranks 3 --batch 2 --strategy zero2
expect 2 2 "^kiln: --strategy is 'none', and there are 2 ranks" train --text "$work/text" --ranks 2
expect 2 1 "^kiln: --transport is 'smoke'; expected one of: threads, mpi, nccl, auto$" train --text "$work/text" --transport smoke
expect 2 1 "^kiln: --grad-comm-dtype is 'fp8'; expected one of: fp32, bf16$" train --text "$work/text" --grad-comm-dtype fp8
expect 2 1 "^kiln: --loss-scale is '0'; expected a number of 1 or more" train --text "$work/text" --loss-scale 0
expect 2 1 "^kiln: --graph is 'yes'; expected one of: on, off, auto$" train --text "$work/text" --graph yes --device cpu
expect 3 2 "^kiln: --graph is 'on', and cpu cannot capture one$" train --text "$work/text" --graph on --device cpu
expect 3 2 '^kiln: cuda:9999 is not available: .' train --text "$work/text" --device cuda:9999
expect 1 2 '/nowhere' train --text /nowhere --out "$work/runs"
"$kiln" train --text "$work/text" --size nano --steps 5 --batch 2 --context 16 --json --out "$work/run" \
  >"$work/out" 2>"$work/err" || fail "kiln train --json: exit $?"
grep -q '"final_loss": [0-9]' "$work/out" || fail "kiln train --json: no final_loss on stdout"
grep -q 'the same to the byte' "$work/err" || fail "kiln train: measured memory is not what was predicted"
ls "$work"/run/events.out.tfevents.* >/dev/null || fail "kiln train: no TensorBoard file"
[[ $(wc -l <"$work/run/metrics.jsonl") -ge 5 ]] || fail "kiln train: metrics.jsonl lacks steps"
expect 0 0 '^total +21 +139584 params +fp32' convert --size nano --to "$work/model"
expect 0 0 '^\{' convert --from "$work/model" --to "$work/model2" --dtype bf16 --max-shard 100KB --json
[[ -e $work/model2/model.safetensors.index.json ]] || fail "kiln convert --max-shard: no index"
expect 1 2 "^kiln: $work/model exists and is not empty$" convert --from "$work/model2" --to "$work/model"
expect 0 0 'weights, config.json, in ' convert --from "$work/model2" --to "$work/model" --force
expect 0 0 'Example:' convert --help
expect 2 2 '^kiln: kiln convert needs --from, --size or --model$' convert --to "$work/m"
expect 2 2 '^kiln: of --from, --size and --model only one can be given$' convert --from a --size nano --to "$work/m"
expect 2 2 '^kiln: kiln convert needs --to$' convert --size nano
expect 2 2 "^hint: did you mean 'nano'\?$" convert --size nan0 --to "$work/m"
expect 2 2 "^kiln: --dtype is 'bf61'; expected fp32, bf16 or fp16$" convert --size nano --to "$work/m" --dtype bf61
expect 2 1 "^kiln: --max-shard is '5gb'; expected a size" convert --size nano --to "$work/m" --max-shard 5gb
expect 2 2 "^hint: did you mean 'halves'\?$" convert --size nano --to "$work/m" --to-rope halfs
expect 2 1 '^kiln: --rope is given without --from' convert --size nano --to "$work/m" --rope halves
expect 2 2 "^kiln: there is no folder $work/none$" convert --from "$work/none" --to "$work/m"
expect 1 1 '^kiln: cannot make the folder /dev/null/x: ' convert --size nano --to /dev/null/x
expect 1 2 "^kiln: will not replace $work: it holds '" convert --size nano --to "$work" --force
sed -i 's/"llama"/"gpt2"/' "$work/model2/config.json"
expect 1 1 '/model2/config.json: model_type is "gpt2"; kiln has only "llama" and "mistral"$' convert --from "$work/model2" --to "$work/m"
[[ ! -e $work/m && ! -e $work/m.tmp ]] || fail "kiln convert: a mistake left something behind"

"$kiln" ops >"$work/out" 2>"$work/err"
[[ $(awk '{ if (length > n) n = length } END { print n }' "$work/out") -le 80 ]] || fail "kiln ops: over 80 columns"

"$kiln" ops --markdown >"$work/out" 2>"$work/err"
diff "$work/out" "$(dirname "$0")/../../docs/ops.md" ||
  fail "docs/ops.md is out of date: build/kiln ops --markdown > docs/ops.md"

# A result that could not be written is a failure.
if [[ -w /dev/full ]]; then
  got=0
  "$kiln" doctor --quick --json >/dev/full 2>"$work/err" || got=$?
  [[ $got == 1 ]] || fail "kiln doctor >/dev/full: exit $got, expected 1"
else
  echo "skipped: a full disk: /dev/full cannot be written to here"
fi

expect 2 2 '^kiln: kiln sample needs --checkpoint$' sample
expect 2 2 "^kiln: there is no folder $work/none$" sample --checkpoint "$work/none"
expect 2 2 "^kiln: .* holds neither config.json nor checkpoints; expected the folder of a model or of a run$" sample --checkpoint "$work"
expect 2 1 "^kiln: --top-p is '2'; expected a number from 1e-12 to 1$" sample --checkpoint "$work" --top-p 2
expect 2 2 '^kiln: kiln eval needs --text$' eval --checkpoint "$work"
expect 0 0 'Example:' sample --help
expect 0 0 'Example:' eval --help
(ulimit -v 3000000; "$kiln" eval --checkpoint "$work/run" --text "$work/text" --ctx 256 --batch 1048576 --threads 1) \
  >"$work/out" 2>"$work/err" || fail "kiln eval: a batch larger than the text takes its memory all the same"
# A mistyped batch is refused at once, from what is predicted.
for command in "train --text $work/text" 'bench step' 'bench warmup' profile ablate 'bench ddp --ranks 2' 'bench fsdp --ranks 2'; do
  got=0
  timeout 20 "$kiln" $command --size nano --batch 1000000 --device cpu --out "$work/huge" >"$work/out" 2>"$work/err" || got=$?
  [[ $got == 1 ]] || fail "kiln $command --batch 1000000: exit $got, expected 1"
  grep -qE '^kiln: .* of memory' "$work/err" || fail "kiln $command --batch 1000000: the error does not say how much memory"
done
"$kiln" convert --size nano --to "$work/nano" >"$work/out" 2>"$work/err" || fail "kiln convert --size nano"
"$kiln" sample --checkpoint "$work/nano" --tokenizer byte --prompt a --tokens 3 --json >"$work/out" 2>"$work/err" ||
  fail "kiln sample: a fresh model of 256 tokens and the byte tokenizer do not agree"
grep -q '"prompt_tokens": 1,' "$work/out" || fail "kiln sample: the prompt is not one byte"
"$kiln" train --model "$work/nano" --tokenizer byte --text "$work/text" --steps 1 --batch 1 --ctx 16 --out "$work/fresh" \
  >"$work/out" 2>"$work/err" || fail "kiln train: a fresh model of 256 tokens and the byte tokenizer do not agree"
"$kiln" eval --checkpoint "$work/fresh" --text "$work/text" >"$work/out" 2>"$work/err" || fail "kiln eval of a byte-level run"
expect 2 2 '^kiln: .*/nano holds no tokenizer$' sample --checkpoint "$work/nano"

expect 0 0 'Example:' study --help
expect 0 0 '^kiln bench step --size nano,micro,tiny ' study 2025 --list --device cpu
expect 0 0 '^kiln bench step --size small,medium,large,xl26,10b ' study 2026 --list --device cpu --scale full
expect 0 0 '^kiln profile --size small,xl26 --ctx 256,1024,max ' profile --study 2026 --list --scale full --device meta
expect 0 0 '^\{' bench step --study=2025 --list --json --device cpu
expect 2 2 '^hint: there are 2025 and 2026$' study
expect 2 2 '^kiln: no part of study 2025 is `kiln sizes`$' sizes --study 2025
expect 3 2 '^kiln: cuda:9999 is not available: ' study 2025 --device cuda:9999
expect 1 2 '^kiln: cannot write /dev/null/runs/results.jsonl' study 2025 --device cpu --out /dev/null/runs
expect 3 1 '^kiln: warmup: meta runs no kernels' study 2025 --only warmup --device meta --out "$work/meta"

if command -v python3 >/dev/null; then
  for command in doctor ops sizes 'precision accumulate' 'precision toymodel' 'precision layernorm' "precision accumulation $few"; do
    "$kiln" $command --json >"$work/out" 2>"$work/err"
    python3 -m json.tool "$work/out" >/dev/null || fail "kiln $command --json: not one JSON document"
  done
else
  echo "skipped: JSON documents: python3 is not installed"
fi

[[ $failures == 0 ]] || exit 1
