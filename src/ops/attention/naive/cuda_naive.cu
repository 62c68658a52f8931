// naive: the readable baseline. Forward: one block per query row makes its scores, their softmax and the
// weighted sum, and writes the probabilities. Backward: one block per query row makes the gradient of its
// scores (kept in the workspace) and dq; one block per key row then sums dk and dv over the queries that saw
// it, in order, so each gradient has one writer and no atomics are needed.
// Memory bound of this variant: q, k, v, o and the B*H*Tq*Tk probabilities once each. Every block reads all
// its keys and values again, from cache at best: that, and the matrix in memory, is what flash attention
// saves.
#include "ops/attention/attention.h"
#include "ops/cuda_device/rank.h"
#include "ops/cuda_device/reduce.cuh"
#include "ops/cuda_device/rows.cuh"

namespace kiln {
namespace {

constexpr int kBlock = 128;        // threads
constexpr int kKeptScores = 4096;  // scores that fit in shared memory; those beyond are computed again

// A [B, T, heads * D] tensor whose batches and rows may be strided.
template <class T>
struct Heads {
  T* base;
  int64_t batch_stride, row_stride, D;

  __device__ T* row(int64_t b, int64_t head, int64_t t) const {
    return base + b * batch_stride + t * row_stride + head * D;
  }
  __device__ explicit operator bool() const { return base != nullptr; }
};

template <class T>
Heads<T> heads_of(const Tensor& t, int64_t D) {
  return t.defined() ? Heads<T>{t.data<T>(), t.stride(0), t.stride(1), D} : Heads<T>{};
}

template <class T>
__device__ Accum<T> dot(const T* a, const T* b, int64_t n) {
  Accum<T> sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += to_accum(a[i]) * to_accum(b[i]);
  return sum;
}

// Block (b, h, i), i fastest: query i of head h.
template <class T>
__global__ void forward_kernel(AttentionProblem p, Heads<T> q, Heads<T> k, Heads<T> v, Heads<T> o, T* probs) {
  using A = Accum<T>;
  __shared__ A kept[kKeptScores];
  __shared__ A weights[kBlock];
  const int64_t row = blockIdx.x, i = row % p.Tq, h = row / p.Tq % p.H, b = row / p.Tq / p.H;
  const int64_t hkv = h / p.group(), n = p.visible(i);

  auto fresh_score = [&](int64_t j) {
    return static_cast<A>(p.scale) * dot(q.row(b, h, i), k.row(b, hkv, j), p.D);
  };
  // Thread t makes and reads the scores t, t + kBlock, ... only, so `kept` needs no barrier.
  auto score = [&](int64_t j) { return j < kKeptScores ? kept[j] : fresh_score(j); };

  A top = -INFINITY, sum = 0;
  for (int64_t j = threadIdx.x; j < n; j += kBlock) {
    const A s = fresh_score(j);
    if (j < kKeptScores) kept[j] = s;
    top = Larger{}(top, s);
  }
  top = block_max(top);
  for (int64_t j = threadIdx.x; j < n; j += kBlock)
    sum += std::exp(score(j) - top);  // a NaN score shows here
  sum = block_sum(sum);

  // kBlock columns of o at a time; for each, the keys tile by tile.
  for (int64_t first_c = 0; first_c < p.D; first_c += kBlock) {
    const int64_t c = first_c + threadIdx.x;
    A out = 0;
    for (int64_t first_j = 0; first_j < p.Tk; first_j += kBlock) {
      const int64_t j = first_j + threadIdx.x;
      const A weight = j < n ? std::exp(score(j) - top) / sum : A(0);
      if (j < p.Tk) probs[row * p.Tk + j] = from_accum<T>(weight);
      weights[threadIdx.x] = weight;
      __syncthreads();
      // Only keys that are seen: a masked value must not reach the output even if it is NaN.
      const int64_t seen = n - first_j < kBlock ? n - first_j : kBlock;
      if (c < p.D) {
        for (int64_t t = 0; t < seen; ++t) out += weights[t] * to_accum(v.row(b, hkv, first_j + t)[c]);
      }
      __syncthreads();
    }
    if (c < p.D) o.row(b, h, i)[c] = from_accum<T>(out);
  }
}

// dP = dO v^T;  dS = P * (dP - rowsum(P * dP));  dq = scale dS k. Block (b, h, i); writes scale * dS.
template <class T>
__global__ void grad_query_kernel(AttentionProblem p, Heads<T> dout, Heads<T> k, Heads<T> v, const T* probs,
                                  Accum<T>* dscores, Heads<T> dq, bool accumulate) {
  using A = Accum<T>;
  const int64_t row = blockIdx.x, i = row % p.Tq, h = row / p.Tq % p.H, b = row / p.Tq / p.H;
  const int64_t hkv = h / p.group(), n = p.visible(i);
  const T* prob = probs + row * p.Tk;
  A* ds = dscores + row * p.Tk;

  A inner = 0;
  for (int64_t j = threadIdx.x; j < n; j += kBlock) {
    ds[j] = dot(dout.row(b, h, i), v.row(b, hkv, j), p.D);
    inner += to_accum(prob[j]) * ds[j];
  }
  inner = block_sum(inner);
  for (int64_t j = threadIdx.x; j < n; j += kBlock) {
    ds[j] = static_cast<A>(p.scale) * to_accum(prob[j]) * (ds[j] - inner);
  }
  if (!dq) return;
  __syncthreads();  // from here on every thread reads the whole row of ds
  for (int64_t c = threadIdx.x; c < p.D; c += kBlock) {
    A sum = 0;
    for (int64_t j = 0; j < n; ++j) sum += ds[j] * to_accum(k.row(b, hkv, j)[c]);
    put_grad(dq.row(b, h, i)[c], sum, accumulate);
  }
}

template <class T>
struct KeyValueGrads {
  Heads<T> dk, dv;
  bool add_to_dk, add_to_dv;
};

// dk = scale dS^T q;  dv = P^T dO. Block (b, hkv, j), j fastest: key j, its group of query heads in order.
template <class T>
__global__ void grad_key_value_kernel(AttentionProblem p, Heads<T> dout, Heads<T> q, const T* probs,
                                      const Accum<T>* dscores, KeyValueGrads<T> out) {
  using A = Accum<T>;
  const int64_t j = blockIdx.x % p.Tk, hkv = blockIdx.x / p.Tk % p.Hkv, b = blockIdx.x / p.Tk / p.Hkv;
  for (int64_t c = threadIdx.x; c < p.D; c += kBlock) {
    A key = 0, value = 0;
    for (int64_t h = hkv * p.group(); h < (hkv + 1) * p.group(); ++h) {
      for (int64_t i = 0; i < p.Tq; ++i) {
        if (j >= p.visible(i)) continue;
        const int64_t at = ((b * p.H + h) * p.Tq + i) * p.Tk + j;
        key += dscores[at] * to_accum(q.row(b, h, i)[c]);
        value += to_accum(probs[at]) * to_accum(dout.row(b, h, i)[c]);
      }
    }
    if (out.dk) put_grad(out.dk.row(b, hkv, j)[c], key, out.add_to_dk);
    if (out.dv) put_grad(out.dv.row(b, hkv, j)[c], value, out.add_to_dv);
  }
}

}  // namespace

void attention_cuda_naive_forward(RankContext& ctx, const AttentionForward& f) {
  const AttentionProblem& p = f.p;
  with_float(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(forward_kernel<T>, Grid(p.B * p.H * p.Tq), kBlock, 0, cuda_stream(ctx), p, heads_of<T>(f.q, p.D),
           heads_of<T>(f.k, p.D), heads_of<T>(f.v, p.D), heads_of<T>(f.o, p.D), f.probs.data<T>());
  });
}

void attention_cuda_naive_backward(RankContext& ctx, const AttentionBackward& b) {
  const AttentionProblem& p = b.p;
  const Stream stream = cuda_stream(ctx);
  with_float(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto dout = heads_of<T>(b.dout, p.D), q = heads_of<T>(b.q, p.D);
    const auto k = heads_of<T>(b.k, p.D), v = heads_of<T>(b.v, p.D);
    auto* dscores = reinterpret_cast<Accum<T>*>(b.workspace.raw());
    launch(grad_query_kernel<T>, Grid(p.B * p.H * p.Tq), kBlock, 0, stream, p, dout, k, v, b.probs.data<T>(),
           dscores, heads_of<T>(b.dq.tensor, p.D), b.dq.accumulate);
    if (!b.dk.wanted() && !b.dv.wanted()) return;
    const KeyValueGrads<T> out{heads_of<T>(b.dk.tensor, p.D), heads_of<T>(b.dv.tensor, p.D), b.dk.accumulate,
                               b.dv.accumulate};
    launch(grad_key_value_kernel<T>, Grid(p.B * p.Hkv * p.Tk), kBlock, 0, stream, p, dout, q,
           b.probs.data<T>(), dscores, out);
  });
}

}  // namespace kiln
