#include "ops/adamw/adamw.h"

#include <cstddef>

#include "ops/cases/bench_case.h"
#include "ops/sgd/sgd.h"

namespace kiln {

// No case lists: these are not ops of the tape. tests/ops/update_ops_test.cpp checks them against their
// formulas.

namespace {

Tensor step_record(RankContext& ctx) {
  const Tensor scalars = ctx.empty({static_cast<int64_t>(sizeof(StepScalars))}, DType::u8, Tag::optim);
  StepScalars step;
  step.lr = 1e-3;
  step.rate1_power = 0.9;
  step.rate2_power = 0.999;
  if (!ctx.device().is_meta()) ctx.upload(scalars, &step);
  return scalars;
}

// Elements of flat tensors.
template <OpBench (*bench)()>
SampledCase sample_elements(const BenchShape& s, const Sampling& sampling) {
  constexpr double kWork = 100;
  const OpBench own = bench();
  const auto make = [&](int64_t n) { return own.make({{"params", n}}); };
  SampledCase c = sample_rows(make, s["params"], kWork, sampling);
  c.by_own_dtype = true;
  return c;
}

}  // namespace

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
                            const Tensor scalars = step_record(ctx);
                            const Tensor value = in[0].tensor.detach();
                            adamw(ctx, {value, in[1].tensor, in[2].tensor, in[3].tensor, in[4].tensor},
                                  scalars, 0.9, 0.999, 1e-8, 0.01);
                            CaseOutputs y{value, in[3].tensor, in[4].tensor};
                            y.low = in[1].tensor;
                            return y;
                          }};
          },
          {{"forward", Pass::forward}},
          sample_elements<adamw_bench>};
}

OpBench sgd_bench() {
  using K = CaseInput::Kind;
  return {"sgd",
          {},
          {{{"params", 16 << 20}}},
          {{"params", 70003}},
          [](const BenchShape& s) {
            const Shape flat{s["params"]};
            return OpCase{"sgd",
                          s.str(),
                          {{"value", K::activation, flat},
                           {"low", K::low_half, flat},
                           {"grad", K::activation, flat},
                           {"b", K::state, flat}},
                          [](RankContext& ctx, std::span<const CaseArgument> in) {
                            const Tensor value = in[0].tensor.detach();
                            sgd(ctx, value, in[1].tensor, in[2].tensor, in[3].tensor, step_record(ctx), 0.9,
                                0.01);
                            CaseOutputs y{value, in[3].tensor};
                            y.low = in[1].tensor;
                            return y;
                          }};
          },
          {{"forward", Pass::forward}},
          sample_elements<sgd_bench>};
}

OpBench square_sum_bench() {
  using K = CaseInput::Kind;
  return {"square_sum",
          {},
          {{{"params", 16 << 20}}},
          {{"params", 70003}},
          [](const BenchShape& s) {
            return OpCase{"square_sum",
                          s.str(),
                          {{"grad", K::activation, {s["params"]}}},
                          [](RankContext& ctx, std::span<const CaseArgument> in) {
                            const Tensor scalars = step_record(ctx);
                            square_sum(ctx, in[0].tensor, scalars);
                            constexpr int64_t kPlace = offsetof(StepScalars, square_sum) / sizeof(double);
                            return scalars.view_as(DType::f64).narrow(0, kPlace, 1);
                          }};
          },
          {{"forward", Pass::forward}},
          [](const BenchShape& s, const Sampling& sampling) {  // one sum: all else is zero
            SampledCase c = sample_elements<square_sum_bench>(s, sampling);
            c.parts[0].outputs = {Slice::whole()};
            c.elsewhere = {0.0};
            return c;
          }};
}

}  // namespace kiln
