// Attention of given sizes as an op case.
#pragma once

#include "base/error.h"
#include "ops/attention/attention.h"
#include "ops/cases/op_case.h"

namespace kiln {

struct AttentionDims {
  int64_t B, Tq, Tk, H, Hkv, D;
  bool causal = true;
  int64_t padding = 0;  // elements between a row's end and the next one's begin
};

inline AttentionProblem problem_of(const AttentionDims& d, DType dtype) {
  AttentionProblem p{d.B, d.Tq, d.Tk, d.H, d.Hkv, d.D, dtype, 1, d.causal};
  const auto aligned = [&](int64_t width) {
    return (width + d.padding) * static_cast<int64_t>(size_of(dtype)) % 16 == 0;
  };
  p.tma = aligned(d.H * d.D) && aligned(d.Hkv * d.D);
  return p;
}

inline OpCase attention_case(const AttentionDims& d) {
  using K = CaseInput::Kind;
  return {"attention",
          cat(d.B, "x", d.Tq, "x", d.Tk, " heads ", d.H, "/", d.Hkv, " width ", d.D, d.causal ? "" : " full"),
          {{"q", K::activation, {d.B, d.Tq, d.H * d.D}, 1, d.padding},
           {"k", K::activation, {d.B, d.Tk, d.Hkv * d.D}, 1, d.padding},
           {"v", K::activation, {d.B, d.Tk, d.Hkv * d.D}, 1, d.padding}},
          [d](RankContext& ctx, std::span<const CaseArgument> in) {
            AttentionOptions o;
            o.heads = d.H;
            o.kv_heads = d.Hkv;
            o.causal = d.causal;
            return attention(ctx, in[0].tensor, in[1].tensor, in[2].tensor, o);
          }};
}

}  // namespace kiln
