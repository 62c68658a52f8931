#include "kiln/train.h"

#include <algorithm>

#include "base/error.h"
#include "model/llama.h"
#include "model/size_registry.h"
#include "perf/ceilings.h"
#include "train/presets.h"

namespace kiln::cli {
namespace {

Precision precision_of(const TrainRequest& r) { return parse_precision("--precision", r.precision); }

Recompute recompute_of(const TrainRequest& r) { return parse_recompute("--recompute", r.recompute); }

ModelConfig model_of(const TrainRequest& r, int32_t vocab) {
  ModelConfig c = config_of(find_model_size(r.size));
  c.vocab = vocab;
  c.recompute = recompute_of(r);
  choose_variants(r.preset, r.variants).apply_to(c);
  return c;
}

StepOptions step_of(const TrainRequest& r) {
  StepOptions s;
  s.batch = r.batch;
  s.context = r.context;
  s.micro_steps = r.micro_steps;
  s.max_norm = r.clip;
  s.loss_scale = r.loss_scale;
  s.adamw.decay = r.decay;
  s.adamw.beta2 = 0.95;  // a short run's second moment must forget the first steps
  return s;
}

LrSchedule schedule_of(const TrainRequest& r) {
  return {r.lr, r.min_lr < 0 ? r.lr / 10 : r.min_lr,
          r.warmup < 0 ? std::min<int64_t>(100, r.steps / 10) : r.warmup, r.steps};
}

}  // namespace

void check_request(const TrainRequest& r) {
  auto at_least = [](const char* option, auto value, auto least) {
    if (value < least)
      throw Error(cat(option, " is ", value, "; expected ", least, " or more"), {}, ErrorKind::usage);
  };
  if (r.text.empty())
    throw Error("kiln train needs --text", "give a text file, a folder of them, or a folder of tokens",
                ErrorKind::usage);
  at_least("--steps", r.steps, int64_t{1});
  at_least("--batch", r.batch, int64_t{1});
  at_least("--context", r.context, int64_t{1});
  at_least("--accumulate", r.micro_steps, 1);
  at_least("--eval-every", r.eval_every, int64_t{0});
  at_least("--eval-batches", r.eval_batches, int64_t{1});
  at_least("--threads", r.threads, 0);
  at_least("--clip", r.clip, 0.0);
  at_least("--decay", r.decay, 0.0);
  if (!(r.held_out >= 0 && r.held_out < 1))
    throw Error(
        cat("--held-out is ", r.held_out, "; expected a part of the text from 0 up to, not including, 1"), {},
        ErrorKind::usage);
  check_schedule(schedule_of(r));
  (void)precision_of(r);
  check_config(model_of(r, 256));
}

int64_t train(const TrainRequest& r, TrainView& view, const std::atomic<bool>& stop) {
  check_request(r);
  RankOptions options;
  options.threads = r.threads;
  options.seed = r.seed;
  options.variants = choose_variants(r.preset, r.variants).ops;
  RankContext ctx(options);
  const TrainingText text = read_training_text(r.text, r.tokenizer, r.held_out, r.context, ctx.pool());

  const StepOptions shape = step_of(r);
  BatchLoader loader(text.train,
                     {.batch = r.batch, .context = r.context, .micro_steps = r.micro_steps, .seed = r.seed});
  Llama model(model_of(r, text.vocab_size));
  const Precision precision = precision_of(r);
  model.params().materialize(ctx, layout_for(precision, shape));
  Strategy one_rank;
  TrainStep step(ctx, model, one_rank, shape);

  TrainSetup setup;
  setup.model = model.config();
  for (const Param& p : model.params().params()) setup.parameters += p.shape.numel();
  setup.train_tokens = text.train->size();
  setup.validation_tokens = text.validation ? text.validation->size() : 0;
  setup.tokens_per_step = r.batch * r.context * r.micro_steps;
  setup.threads = ctx.pool().threads();
  setup.step_flops = micro_step_flops(model.config(), r.batch, r.context).model() * r.micro_steps;
  const CpuIsa isa = ctx.traits().isa;
  setup.isa = name_of(isa);
  setup.peak_flops =
      measure_cpu_ceilings(ctx.pool(), isa, {.seconds_each = 0.02, .one_thread = false, .copy = false})
          .flops_for(policy_of(precision).compute == DType::bf16 ? DType::bf16 : DType::f32, isa)
          .all;
  view.on_setup(r, setup);

  RunOptions run_options;
  run_options.steps = r.steps;
  run_options.lr = schedule_of(r);
  run_options.eval_every = r.eval_every;
  run_options.eval_batches = r.eval_batches;
  run_options.overfit_one_batch = r.overfit;
  TrainingRun run(ctx, model, step, shape, loader, text.validation, run_options);
  return run.run(view, stop);
}

}  // namespace kiln::cli
