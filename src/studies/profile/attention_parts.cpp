#include "studies/profile/attention_parts.h"

#include <vector>

#include "autograd/host_floats.h"
#include "autograd/tape.h"
#include "base/rng.h"
#include "ops/attention/attention.h"

namespace kiln {
namespace {

// Attention as the step's forward runs it, all layers: its op, or its three parts.
void find_in_step(const Trace& step, AttentionStudy& study) {
  std::vector<bool> of_attention(step.ops.size(), false);
  for (std::size_t i = 0; i < step.ops.size(); ++i) {
    const TracedOp& op = step.ops[i];
    if (op.phase != StepPhase::forward || op.op != "attention") continue;
    of_attention[i] = true;
    study.variant = op.variant;
  }
  for (const TraceSpan& s : step.spans) {
    if (s.op >= 0 && of_attention[static_cast<std::size_t>(s.op)]) study.step_ms += s.us() / 1e3;
  }
}

Tensor random_tensor(RankContext& ctx, const Shape& shape, DType dtype, const char* name) {
  Tensor t = ctx.empty(shape, dtype);
  std::vector<float> values(static_cast<std::size_t>(shape.numel()));
  const PhiloxKey key = philox_key(ctx.seed(), name);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(philox(key, i, 0).x) * 0x1p-31f - 1;
  upload_floats(ctx, t, values);
  return t;
}

}  // namespace

AttentionStudy study_attention(const StepProfile& p, const RankOptions& rank, const TraceOptions& options,
                               KernelTimes* times) {
  AttentionStudy study;
  const Trace& step = p.step();
  find_in_step(step, study);
  if (const auto parts = attention_parts(step, p.rates)) {
    study.in_the_step = true;
    study.variant = "composed";
    study.parts = *parts;
    study.layers = parts->front().calls;
    for (const AttentionPart& part : *parts) study.step_ms += part.ms;
    return study;
  }
  const ModelConfig& c = p.spec.model;
  const int64_t B = p.spec.step.batch, T = p.spec.step.context;
  const DType dtype = policy_of(p.spec.precision).compute;
  const double matrix = static_cast<double>(B * c.heads) * static_cast<double>(T) * static_cast<double>(T) *
                        static_cast<double>(size_of(dtype));
  if (p.free_memory != SIZE_MAX && 3 * matrix > static_cast<double>(p.free_memory)) {
    study.why_not =
        cat("measuring its parts needs two matrices of ", human({static_cast<std::size_t>(matrix)}));
    return study;
  }
  RankContext ctx(rank);
  const GradModeGuard off(ctx, GradMode::off);
  const Tensor q = random_tensor(ctx, {B, T, c.heads * c.head_dim()}, dtype, "q"),
               k = random_tensor(ctx, {B, T, c.kv_heads * c.head_dim()}, dtype, "k"),
               v = random_tensor(ctx, {B, T, c.kv_heads * c.head_dim()}, dtype, "v");
  const TracedWork work{[&] {
                          (void)attention(ctx, q, k, v,
                                          {.heads = c.heads, .kv_heads = c.kv_heads, .variant = "composed"});
                        },
                        [&] { ctx.synchronize(); }};
  TraceOptions few = options;
  few.max_seconds = options.max_seconds / 4;
  const TracedSteps traced = times != nullptr                  ? trace_by_kernels(ctx, work, few, *times)
                             : p.source == TraceSource::events ? trace_by_events(ctx, work, few)
                                                               : trace_by_clock(ctx, work, few);
  if (const auto parts = attention_parts(traced.median(), p.rates)) study.parts = *parts;
  return study;
}

}  // namespace kiln
