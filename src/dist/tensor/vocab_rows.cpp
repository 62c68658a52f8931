#include "dist/tensor/vocab_rows.h"

#include <limits>

#include "ops/cpu_fused.h"

#define KILN_SIMD_FILE "ops/cross_entropy/cpu_rows_simd.h"
#include "device/cpu/simd_each.h"

namespace kiln {
namespace {

bool on_cuda(RankContext& ctx) { return ctx.traits().type == DeviceType::cuda; }

const RowPart* parts_of(const Tensor& t) { return reinterpret_cast<const RowPart*>(t.data<float>()); }

template <class T>
void row_parts_cpu(RankContext& ctx, const Tensor& logits, const int32_t* targets, RowPart* parts) {
  const auto row_lse = KILN_SIMD_PICK(ctx.traits().isa, row_lse<T>);
  const auto rows = rows_of<T>(logits);
  const int64_t vocab = logits.dim(1);
  ctx.pool().parallel_for(logits.dim(0), row_grain(vocab), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int32_t t = targets[r];
      if (t == kIgnoreTarget) {
        parts[r] = {0, 0};
        continue;
      }
      const float target = t >= 0 && t < vocab    ? widen(rows[r][t])
                           : t == kTokenElsewhere ? 0.0f
                                                  : std::numeric_limits<float>::quiet_NaN();
      parts[r] = {row_lse(rows[r], vocab), target};
    }
  });
}

}  // namespace

Tensor local_ids(RankContext& ctx, const Tensor& ids, const VocabPart& here) {
  if (ids.dtype() != DType::i32 || !ids.contiguous())
    throw Error(cat("ids ", ids.shape().str(), " ", name_of(ids.dtype()), " are not dense int32"));
  const Tensor out = ctx.empty(ids.shape(), DType::i32, Tag::data);
  if (ctx.device().is_meta()) return out;
  if (on_cuda(ctx)) {
    local_ids_cuda(ctx, ids, here, out);
    return out;
  }
  for (int64_t i = 0; i < ids.numel(); ++i) out.data<int32_t>()[i] = here.local(ids.data<int32_t>()[i]);
  return out;
}

void row_parts(RankContext& ctx, const Tensor& logits, const Tensor& local_targets, const Tensor& parts) {
  if (ctx.device().is_meta()) return;
  if (on_cuda(ctx)) return row_parts_cuda(ctx, logits, local_targets, parts);
  with_narrow_float(logits.dtype(), [&](auto zero) {
    row_parts_cpu<decltype(zero)>(ctx, logits, local_targets.data<int32_t>(),
                                  reinterpret_cast<RowPart*>(parts.data<float>()));
  });
}

void join_row_parts(RankContext& ctx, const Tensor& parts, const Tensor& local_targets, const Tensor& lse,
                    const Tensor& losses) {
  if (ctx.device().is_meta()) return;
  if (on_cuda(ctx)) return join_row_parts_cuda(ctx, parts, local_targets, lse, losses);
  const int64_t rows = lse.numel();
  const int ranks = static_cast<int>(parts.dim(0));
  for (int64_t r = 0; r < rows; ++r) {
    const RowPart* row = parts_of(parts) + r;
    const bool counts = local_targets.data<int32_t>()[r] != kIgnoreTarget;
    lse.data<float>()[r] = counts ? joined_lse(row, ranks, rows) : 0;
    losses.data<float>()[r] = counts ? lse.data<float>()[r] - joined_target(row, ranks, rows) : 0;
  }
}

void mean_of_rows(RankContext& ctx, const Tensor& losses, const Tensor& local_targets, const Tensor& loss,
                  const Tensor& count) {
  if (ctx.device().is_meta()) return;
  if (on_cuda(ctx)) return mean_of_rows_cuda(ctx, losses, local_targets, loss, count);
  const MeanLoss mean = mean_loss(losses.data<float>(), local_targets.data<int32_t>(), losses.numel());
  loss.data<float>()[0] = static_cast<float>(mean.loss);
  if (count.defined()) count.data<float>()[0] = static_cast<float>(mean.count);
}

}  // namespace kiln
