// The list of commands, in the order `kiln --help` shows them. Each is defined in its cmd_<name>.cpp.
#include "kiln/command.h"

namespace kiln::cli {

using Add = void(Command& command, const CommonOptions& common);
Add add_ablate, add_bench, add_calc, add_compare, add_completions, add_convert, add_diff, add_doctor,
    add_eval, add_fit, add_man, add_measure, add_memory, add_ops, add_plan, add_precision, add_profile,
    add_report, add_residuals, add_run, add_sample, add_sizes, add_study, add_tokenize, add_train, add_tune,
    add_watch;

std::span<const CommandEntry> commands() {
  static constexpr CommandEntry kCommands[] = {
      {"doctor", "what this machine offers: CPU, memory, GPUs, and problems", "kiln doctor --json",
       add_doctor},
      {"ops", "every op, its variants, where they run, and why one cannot run here",
       "kiln ops attention rms_norm --device cpu", add_ops},
      {"sizes", "the models known by name: parameters, memory and FLOPs of each", "kiln sizes small 2.7b",
       add_sizes},
      {"train", "text to a trained model", "kiln train --text README.md --size nano --steps 60", add_train},
      {"watch", "a run in the terminal, or as a page: while it trains and afterwards",
       "kiln watch runs/README-nano --once", add_watch},
      {"sample", "generates text from a prompt",
       "kiln sample --checkpoint runs/README-nano --prompt 'Once upon a time' --temperature 0.8 --top-p 0.95",
       add_sample},
      {"eval", "loss, perplexity and bits per byte of a model on a text",
       "kiln eval --checkpoint runs/README-nano --text README.md --json", add_eval},
      {"bench", "timed studies: op, step, warmup, attention, flash, allreduce, ddp, zero, fsdp, leaderboard",
       "kiln bench op rms_norm --shape rows=8192,cols=4096 --dtype fp32,bf16", add_bench},
      {"study", "all sweeps of the 2025 or 2026 course, into one folder", "kiln study 2025 --scale tiny",
       add_study},
      {"profile", "where a training step's time goes: ranges, kernels, launches, and a timeline",
       "kiln profile --size small --batch 1 --ctx 128 --json", add_profile},
      {"memory", "memory of a step by purpose, over time; scaling, recompute-sweep",
       "kiln memory --size small --ctx 512 --dtype fp32,bf16 --device meta", add_memory},
      {"fit", "what fits into a memory limit: batch, context, model, and the cheapest recompute policy",
       "kiln fit --size medium --memory 8GiB --device cpu --json", add_fit},
      {"residuals", "tensors saved for backward: by an op's variants, or by a block",
       "kiln residuals --op rms_norm --shape 4,512,2560", add_residuals},
      {"precision", "effects of number formats: accumulate, toymodel, layernorm, accumulation",
       "kiln precision accumulate", add_precision},
      {"ablate", "the optimizations one by one and combined, each behind a quality gate",
       "kiln ablate --quick", add_ablate},
      {"report", "stored rows to report.md, with tables and charts", "kiln report --out runs", add_report},
      {"run", "a command on several ranks: processes (MPI, NCCL) or threads of this machine",
       "kiln run --nproc 4 -- doctor --collectives", add_run},
      {"calc", "theory against measurement: ring, bucket, fsdp-savings",
       "kiln calc bucket --s 512MB --w 10GB/s --o 20us", add_calc},
      {"measure", "what a step of any configuration executes, moves, calls, holds and takes",
       "kiln measure --size tiny --preset both --recompute block --device cpu", add_measure},
      {"compare", "a step's theory, roofline, predicted and measured time, op by op, and why they differ",
       "kiln compare --size tiny --device cpu", add_compare},
      {"diff", "two steps, or two stored rows: which ops and causes make the difference",
       "kiln diff preset=baseline preset=optimized --size tiny --device cpu", add_diff},
      {"plan", "layouts of a model over N devices (DP, ZeRO, FSDP, TP), the quickest that fits first",
       "kiln plan --devices 64 --hw h100 --size 10b", add_plan},
      {"tune", "measures GEMM algorithms, or attention's tiles, and keeps the fastest",
       "kiln tune --size small,medium --batch 4 --ctx 512 --vocab 10000 --precision bf16 --device cuda",
       add_tune},
      {"tokenize", "text to token shards; trains a BPE on request",
       "kiln tokenize --text docs --train-bpe 4096 --out runs/docs", add_tokenize},
      {"convert", "a Hugging Face model folder to another: dtype, shards; or a fresh model",
       "kiln convert --from runs/README-nano --to runs/nano-bf16 --dtype bf16", add_convert},
      {.name = "completions",
       .summary = "shell completions, generated from the commands' declarations",
       .example = "kiln completions bash > ~/.local/share/bash-completion/completions/kiln",
       .add = add_completions,
       .hidden = true},
      {.name = "man",
       .summary = "the manual page, generated from the commands' declarations",
       .example = "kiln man | man -l -",
       .add = add_man,
       .hidden = true},
  };
  return kCommands;
}

}  // namespace kiln::cli
