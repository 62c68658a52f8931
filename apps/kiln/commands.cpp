// The list of commands, in the order `kiln --help` shows them.
#include "kiln/cmd.h"

namespace kiln::cli {

std::span<const Command> commands() {
  static constexpr Command kCommands[] = {
      {"doctor", "what this machine offers: CPU, memory, GPUs, and what is amiss", "kiln doctor --json",
       add_doctor},
      {"ops", "every op, its variants, where they run and why one cannot run here",
       "kiln ops attention rms_norm --device cpu", add_ops},
      {"sizes", "the models known by name: parameters, memory and FLOPs of each", "kiln sizes small 2.7b",
       add_sizes},
      {"train", "text to a trained model", "kiln train --text README.md --size nano --steps 60", add_train},
      {"sample", "a model goes on with a text",
       "kiln sample --checkpoint runs/README-nano --prompt 'Once upon a time' --temperature 0.8 --top-p 0.95",
       add_sample},
      {"eval", "how well a model predicts a text: loss, perplexity, bits per byte",
       "kiln eval --checkpoint runs/README-nano --text README.md --json", add_eval},
      {"bench", "timed studies: op, step, warmup, attention, flash, allreduce, ddp, zero, fsdp, leaderboard",
       "kiln bench op rms_norm --shape rows=8192,cols=4096 --dtype fp32,bf16", add_bench},
      {"study", "all sweeps of the 2025 or 2026 course, one after another, into one folder",
       "kiln study 2025 --scale tiny", add_study},
      {"profile", "where a training step goes: ranges, kernels, launches, and a timeline",
       "kiln profile --size small --batch 1 --ctx 128 --json", add_profile},
      {"memory", "what holds the memory of a step, and when; scaling, recompute-sweep",
       "kiln memory --size small --ctx 512 --dtype fp32,bf16 --device meta", add_memory},
      {"residuals", "what forward keeps for backward: of an op, variant by variant, or of a block",
       "kiln residuals --op rms_norm --shape 4,512,2560", add_residuals},
      {"precision", "what number formats do: accumulate, toymodel, layernorm, accumulation",
       "kiln precision accumulate", add_precision},
      {"ablate", "the optimizations one by one and together, each behind a quality gate",
       "kiln ablate --quick", add_ablate},
      {"report", "stored rows to report.md, with tables and pictures", "kiln report --out runs", add_report},
      {"run", "a command on several ranks: processes (MPI, NCCL) or threads of this machine",
       "kiln run --nproc 4 -- doctor --collectives", add_run},
      {"calc", "what theory says, beside what was measured: ring, bucket, fsdp-savings",
       "kiln calc bucket --s 512MB --w 10GB/s --o 20us", add_calc},
      {"tune", "measures algorithms of matrix products, or tiles of attention, and keeps the fastest",
       "kiln tune --size small,medium --batch 4 --ctx 512 --vocab 10000 --dtype bf16 --device cuda",
       add_tune},
      {"tokenize", "text to token shards; trains a BPE where asked to",
       "kiln tokenize --text docs --train-bpe 4096 --out runs/docs", add_tokenize},
      {"convert", "a Hugging Face model folder to another: dtype, shards; or a fresh model",
       "kiln convert --from runs/README-nano --to runs/nano-bf16 --dtype bf16", add_convert},
  };
  return kCommands;
}

}  // namespace kiln::cli
