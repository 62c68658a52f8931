// flash_few_rows: each pass by flash's kernels or by flash_hopper's; which, and why, is said in few_rows.h.
// Both leave the same things for backward.
#include "ops/attention/row_choice.h"

namespace kiln {

void attention_cuda_few_rows_forward(RankContext& ctx, const AttentionForward& f) {
  if (parts_beat_hopper(f.p)) return attention_cuda_flash_forward(ctx, f);
  attention_cuda_hopper_forward(ctx, f);
}

void attention_cuda_few_rows_backward(RankContext& ctx, const AttentionBackward& b) {
  if (flash_backward_beats_hopper(b.p)) return attention_cuda_flash_backward(ctx, b);
  attention_cuda_hopper_backward(ctx, b);
}

}  // namespace kiln
