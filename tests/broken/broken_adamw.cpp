// AdamW's fused CPU variant without its weight decay, as broken_variants.cpp does it: a mistake of a
// hundred-thousandth of a weight, which must show though the step computes in bf16.
#include <cstdlib>
#include <string_view>

#define adamw_cpu_fused right_adamw_cpu_fused
#include "ops/adamw/cpu_fused.cpp"
#undef adamw_cpu_fused

namespace kiln {

void adamw_cpu_fused(RankContext& ctx, const AdamWForward& f) {
  const char* asked = std::getenv("KILN_BROKEN");
  if (asked == nullptr || std::string_view(asked) != "forgotten decay") return right_adamw_cpu_fused(ctx, f);
  AdamWForward without = f;
  without.p.decay = 0;
  without.p.segments = 0;
  right_adamw_cpu_fused(ctx, without);
}

}  // namespace kiln
