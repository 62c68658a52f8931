#!/usr/bin/env bash
# usage: tools/demo.sh KILN [RUN]
# Trains a small language model on kiln's own sources for about a minute and a half, then samples from it. The number
# of steps follows from how fast this machine is. Then turns every optimization on by itself, all combined, and one at a
# time off again, behind a quality gate, and writes a report of everything: two minutes on two cores. The run is kept in RUN
# (default runs/demo); an earlier one there is moved aside.
#   DEMO_SECONDS=40   approximate training time
set -euo pipefail
kiln=$1 run=${2:-runs/demo}
seconds=${DEMO_SECONDS:-90}

# What they are and why: docs/training.md, "The demo".
size=micro batch=8 context=128
settings=(--size "$size" --train-bpe 1024 --batch "$batch" --ctx "$context" --precision bf16 --lr 4e-3 --val-fraction 0.03)

echo "measuring how many steps fit into $seconds s"
trial=$(mktemp -d)
trap 'rm -rf "$trial"' EXIT
rate=$("$kiln" train "${settings[@]}" --steps 20 --sample-tokens 0 --out "$trial/run" --json 2>/dev/null |
  sed -n 's/^ *"tokens_per_s": \([0-9]*\).*/\1/p')
[[ -n $rate ]] || { echo "demo: the trial run printed nothing; run: $kiln train ${settings[*]} --steps 20" >&2; exit 1; }
steps=$((seconds * rate / (batch * context)))
((steps >= 200)) || steps=200
((steps <= 6000)) || steps=6000

echo "training $steps steps; Ctrl-C stops after the current step and saves"
echo
"$kiln" train "${settings[@]}" --steps "$steps" --eval-every $((steps / 5)) --out "$run" --fresh

for prompt in '// The ' 'void ' 'kiln is '; do
  echo
  echo "--- kiln sample --checkpoint $run --prompt '$prompt' --temperature 0.8 --top-p 0.95"
  "$kiln" sample --checkpoint "$run" --prompt "$prompt" --temperature 0.8 --top-p 0.95
done
echo
echo "--- kiln ablate --quick: what each optimization is worth on this machine (up to two minutes)"
begun=$SECONDS
"$kiln" ablate --quick --fresh --out "$run"
echo
echo "--- kiln report"
"$kiln" report --out "$run"
echo "(ablate and report took $((SECONDS - begun)) s)"
echo
echo "report.html      what was measured, with answers, tables and charts; open it: $(cd "$run" && pwd)/report.html"
echo "checkpoints/     models; each is a Hugging Face folder with its tokenizer"
echo "metrics.jsonl    every step; for TensorBoard: tensorboard --logdir $run"
echo "results.jsonl    the rows behind the report"
echo "more samples:    $kiln sample --checkpoint $run --prompt 'Tensor '"
