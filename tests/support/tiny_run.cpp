#include "support/tiny_run.h"

#include "autograd/tape.h"
#include "base/rng.h"

namespace kiln {

TinyRun::TinyRun() {
  model.vocab = 61;
  model.d_model = 24;
  model.d_ff = 40;
  model.heads = 6;
  model.kv_heads = 2;
  step.batch = 2;
  step.context = 11;
  step.max_norm = 1;
}

TinyBatch tiny_batch(const TinyRun& run, int64_t number) {
  const int64_t n = run.step.batch * run.step.context;
  TinyBatch b;
  const PhiloxKey key = philox_key(run.data_seed, "tokens");
  for (int64_t i = 0; i < n; ++i) {
    const auto id =
        static_cast<int32_t>(philox(key, static_cast<uint64_t>(number * n + i), 0).x % run.model.vocab);
    b.tokens.push_back(id);
    b.targets.push_back(static_cast<int32_t>((id * 7 + 3) % run.model.vocab));  // something to learn
  }
  return b;
}

std::vector<std::byte> fetch_bytes(RankContext& ctx, const Tensor& t) {
  if (!t.defined() || ctx.device().is_meta()) return {};
  std::vector<std::byte> bytes(t.bytes().value);
  ctx.download(bytes.data(), t);
  return bytes;
}

TinyResult train_tiny(RankContext& ctx, const TinyRun& run, Strategy& strategy) {
  Llama model(run.model);
  model.params().materialize(ctx, layout_for(run.precision, run.step, ctx.world(), strategy));
  strategy.attach(model.params());
  TinyResult result;
  {
    TrainStep step(ctx, model, strategy, run.step);
    int64_t number = 0;
    for (int s = 0; s < run.steps; ++s) {
      std::vector<TinyBatch> batches;
      std::vector<HostBatch> views;
      for (int i = 0; i < run.step.micro_steps; ++i)
        batches.push_back(tiny_batch(run, number + i * ctx.world() + ctx.rank()));
      number += run.step.micro_steps * ctx.world();
      for (const TinyBatch& b : batches) views.push_back(b.host());
      if (auto r = step.run(views, run.lr)) {
        result.losses.push_back(r->loss);
        result.norms.push_back(r->grad_norm);
      }
    }
    const StepScalars last = step.finish();
    result.losses.push_back(last.loss);
    result.norms.push_back(last.grad_norm);
    result.captured = step.captured();
    for (const OptimizerState& s : step.optimizer().state())
      result.state[std::string(s.name)] = fetch_bytes(ctx, s.values);
  }
  result.values = fetch_bytes(ctx, model.params().values());
  result.low = fetch_bytes(ctx, model.params().low());
  result.memory = ctx.allocator().stats();
  ctx.tape().reset();
  return result;
}

TinyResult train_tiny(const RankOptions& options, const TinyRun& run) {
  RankContext ctx(options);
  Strategy plain;
  return train_tiny(ctx, run, plain);
}

}  // namespace kiln
