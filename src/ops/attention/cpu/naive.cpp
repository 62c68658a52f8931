// The definition: scores, softmax, weighted sum, with the probabilities kept in memory for backward.
#include <cmath>
#include <vector>

#include "ops/attention/attention.h"
#include "ops/cpu_rows.h"

namespace kiln {
namespace {

// One head of a [B, T, heads*D] tensor: row t is head_of(...)[t].
template <class T>
Rows<T> head_of(const Tensor& t, int64_t b, int64_t head, int64_t D) {
  return {t.data<T>() + b * t.stride(0) + head * D, t.stride(1)};
}

template <class T>
Accum<T> dot(const T* a, const T* b, int64_t n) {
  Accum<T> sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += widen(a[i]) * widen(b[i]);
  return sum;
}

template <class T>
void forward(RankContext& ctx, const AttentionForward& f) {
  using A = Accum<T>;
  const AttentionProblem& p = f.p;
  ctx.pool().parallel_for(p.B * p.H, 1, [&](int64_t begin, int64_t end) {
    for (int64_t bh = begin; bh < end; ++bh) {
      const int64_t b = bh / p.H, h = bh % p.H;
      const auto q = head_of<T>(f.q, b, h, p.D), o = head_of<T>(f.o, b, h, p.D);
      const auto k = head_of<T>(f.k, b, h / p.group(), p.D), v = head_of<T>(f.v, b, h / p.group(), p.D);
      T* probs = f.probs.data<T>() + bh * p.Tq * p.Tk;
      std::vector<A> score(static_cast<std::size_t>(p.Tk)), out(static_cast<std::size_t>(p.D));
      for (int64_t i = 0; i < p.Tq; ++i) {
        const int64_t n = p.visible(i);
        A top = -INFINITY, sum = 0;
        for (int64_t j = 0; j < n; ++j) {
          score[j] = static_cast<A>(p.scale) * dot(q[i], k[j], p.D);
          if (!(score[j] <= top)) top = score[j];  // a NaN score wins, so it reaches the output
        }
        for (int64_t j = 0; j < n; ++j) sum += score[j] = std::exp(score[j] - top);
        std::fill(out.begin(), out.end(), A(0));
        for (int64_t j = 0; j < p.Tk; ++j) {
          const A weight = j < n ? score[j] / sum : A(0);
          probs[i * p.Tk + j] = static_cast<T>(weight);
          if (j >= n) continue;  // a masked value must not reach the output even if it is NaN
          for (int64_t c = 0; c < p.D; ++c) out[c] += weight * widen(v[j][c]);
        }
        for (int64_t c = 0; c < p.D; ++c) o[i][c] = static_cast<T>(out[c]);
      }
    }
  });
}

// dv += P^T dO;  dP = dO v^T;  dS = P * (dP - rowsum(P * dP));  dq = scale dS k;  dk = scale dS^T q.
// A task owns one (batch, kv head) and walks its group of query heads in order, so dk and dv have one writer.
template <class T>
void backward(RankContext& ctx, const AttentionBackward& a) {
  using A = Accum<T>;
  const AttentionProblem& p = a.p;
  ctx.pool().parallel_for(p.B * p.Hkv, 1, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t b = task / p.Hkv, hkv = task % p.Hkv;
      const auto k = head_of<T>(a.k, b, hkv, p.D), v = head_of<T>(a.v, b, hkv, p.D);
      A* dk = reinterpret_cast<A*>(a.workspace.raw()) + 2 * task * p.Tk * p.D;
      A* dv = dk + p.Tk * p.D;
      std::fill(dk, dk + 2 * p.Tk * p.D, A(0));
      std::vector<A> dS(static_cast<std::size_t>(p.Tk)), dq_row(static_cast<std::size_t>(p.D));
      for (int64_t h = hkv * p.group(); h < (hkv + 1) * p.group(); ++h) {
        const auto q = head_of<T>(a.q, b, h, p.D), dO = head_of<T>(a.dout, b, h, p.D);
        const auto dq = a.dq.wanted() ? head_of<T>(a.dq.tensor, b, h, p.D) : Rows<T>{};
        const T* probs = a.probs.data<T>() + (b * p.H + h) * p.Tq * p.Tk;
        for (int64_t i = 0; i < p.Tq; ++i) {
          const int64_t n = p.visible(i);
          A inner = 0;
          for (int64_t j = 0; j < n; ++j) {
            dS[j] = dot(dO[i], v[j], p.D);
            inner += widen(probs[i * p.Tk + j]) * dS[j];
          }
          std::fill(dq_row.begin(), dq_row.end(), A(0));
          for (int64_t j = 0; j < n; ++j) {
            const A prob = widen(probs[i * p.Tk + j]);
            const A ds = static_cast<A>(p.scale) * prob * (dS[j] - inner);
            for (int64_t c = 0; c < p.D; ++c) {
              dq_row[c] += ds * widen(k[j][c]);
              dk[j * p.D + c] += ds * widen(q[i][c]);
              dv[j * p.D + c] += prob * widen(dO[i][c]);
            }
          }
          if (!a.dq.wanted()) continue;
          for (int64_t c = 0; c < p.D; ++c) put(dq[i][c], dq_row[c], a.dq.accumulate);
        }
      }
      auto write = [&](const GradSlot& slot, const A* sums) {
        if (!slot.wanted()) return;
        const auto rows = head_of<T>(slot.tensor, b, hkv, p.D);
        for (int64_t j = 0; j < p.Tk; ++j) {
          for (int64_t c = 0; c < p.D; ++c) put(rows[j][c], sums[j * p.D + c], slot.accumulate);
        }
      };
      write(a.dk, dk);
      write(a.dv, dv);
    }
  });
}

}  // namespace

void attention_cpu_naive_forward(RankContext& ctx, const AttentionForward& f) {
  with_float(f.p.dtype, [&](auto zero) { forward<decltype(zero)>(ctx, f); });
}

void attention_cpu_naive_backward(RankContext& ctx, const AttentionBackward& b) {
  with_float(b.p.dtype, [&](auto zero) { backward<decltype(zero)>(ctx, b); });
}

}  // namespace kiln
