#include "ops/adamw/adamw.h"

#include "op_cases/bench_case.h"

namespace kiln {

// No case list: it is not an op of the tape. tests/ops/update_ops_test.cpp checks it against its formula.
OpBench adamw_bench() {
  using K = CaseInput::Kind;
  return {"adamw",
          {},
          {{{"params", 16 << 20}}},
          {{"params", 70003}},
          [](const BenchShape& s) {
            const Shape flat{s["params"]};
            CaseInput v{"v", K::state, flat};
            v.absolute = true;
            return OpCase{"adamw",
                          s.str(),
                          {{"value", K::activation, flat},
                           {"low", K::low_half, flat},
                           {"grad", K::activation, flat},
                           {"m", K::state, flat},
                           v},
                          [](RankContext& ctx, std::span<const CaseArgument> in) {
                            const Tensor scalars =
                                ctx.empty({static_cast<int64_t>(sizeof(StepScalars))}, DType::u8, Tag::optim);
                            StepScalars step;
                            step.lr = 1e-3;
                            step.clip = 1;
                            step.beta1_power = 0.9;
                            step.beta2_power = 0.999;
                            if (!ctx.device().is_meta()) ctx.upload(scalars, &step);
                            const Tensor value = in[0].tensor.detach();
                            adamw(ctx, {value, in[1].tensor, in[2].tensor, in[3].tensor, in[4].tensor},
                                  scalars, 0.9, 0.999, 1e-8, 0.01);
                            return value;
                          }};
          },
          {{"forward", Pass::forward}}};
}

}  // namespace kiln
