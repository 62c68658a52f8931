// What the tiled backward kernels are given, and what two of them begin with.
#pragma once

#include "ops/attention/tiled/matmul.cuh"

namespace kiln::tiled {

template <class T>
struct BackwardRows {
  HeadRows<T> q, k, v, o, dout, dq, dk, dv;
  const float* lse;  // [B, H, Tq]
  float* delta;      // [B, H, Tq]
  float* dq_accum;   // [B, Tq, H * D], of a ladder step that adds to dq by atomics
  Sequences sequences;
};

template <class T>
BackwardRows<T> backward_rows(const AttentionBackward& b) {
  const int64_t D = b.p.D;
  auto* delta = reinterpret_cast<float*>(b.workspace.raw());
  return {.q = flash::head_rows<T>(b.q, D),
          .k = flash::head_rows<T>(b.k, D),
          .v = flash::head_rows<T>(b.v, D),
          .o = flash::head_rows<T>(b.o, D),
          .dout = flash::head_rows<T>(b.dout, D),
          .dq = flash::head_rows<T>(b.dq.tensor, D, b.dq.accumulate),
          .dk = flash::head_rows<T>(b.dk.tensor, D, b.dk.accumulate),
          .dv = flash::head_rows<T>(b.dv.tensor, D, b.dv.accumulate),
          .lse = b.lse.data<float>(),
          .delta = delta,
          .dq_accum = delta + b.p.batches() * b.p.H * b.p.query_rows(),
          .sequences = b.sequences};
}

// delta of query i of the sequence, by kPer neighbouring threads; all of them get it.
template <int kPer, class T>
__device__ float make_delta(const AttentionProblem& p, const BackwardRows<T>& rows, const Sequence& at, int h,
                            int i) {
  constexpr int kVector = Pack<T>::kSize;
  const int D = static_cast<int>(p.D), mine = static_cast<int>(threadIdx.x) % kPer;
  float sum = 0;
  if (i < at.Tq) {
    const int row = at.first_query + i;
    const T *o = rows.o.at(at.batch, h, D, row), *dout = rows.dout.at(at.batch, h, D, row);
    if (rows.o.vectorizable && rows.dout.vectorizable) {
      for (int c = mine * kVector; c < D; c += kPer * kVector) {
        const Pack<T> x = load_pack(o + c), y = load_pack(dout + c);
#pragma unroll
        for (int k = 0; k < kVector; ++k) sum += x[k] * y[k];
      }
    } else {
      for (int c = mine; c < D; c += kPer) sum += static_cast<float>(o[c]) * static_cast<float>(dout[c]);
    }
  }
#pragma unroll
  for (int other = 1; other < kPer; other *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, other);
  return sum;
}

// exp(scale s - lse): the difference is rounded once, and small where the probability is not.
__device__ inline float probability(float score, float scale, float lse) {
  return exp2_fast((score * scale - lse) * kLog2E);
}

}  // namespace kiln::tiled
