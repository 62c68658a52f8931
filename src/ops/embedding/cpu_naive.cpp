#include <limits>
#include <vector>

#include "ops/cpu_rows.h"
#include "ops/embedding/embedding.h"

namespace kiln {

void embedding_cpu_naive_forward(RankContext& ctx, const EmbeddingForward& f) {
  with_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const int32_t* tokens = f.tokens.data<int32_t>();
    const auto w = rows_of<T>(f.weight), y = rows_of<T>(f.y);
    ctx.pool().parallel_for(f.p.tokens, row_grain(f.p.cols), [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const bool known = tokens[t] >= 0 && tokens[t] < f.p.vocab;
        const auto none =
            static_cast<T>(tokens[t] == kTokenElsewhere ? 0.0f : std::numeric_limits<float>::quiet_NaN());
        for (int64_t c = 0; c < f.p.cols; ++c) y[t][c] = known ? w[tokens[t]][c] : none;
      }
    });
  });
}

namespace {

// Token positions sorted by vocabulary row, stable: positions of row v are order[start[v]] ..
// order[start[v+1]-1].
struct TokensByRow {
  std::vector<int64_t> start, order;
  TokensByRow(const int32_t* tokens, int64_t count, int64_t vocab)
      : start(static_cast<std::size_t>(vocab) + 1), order(static_cast<std::size_t>(count)) {
    for (int64_t t = 0; t < count; ++t) {
      if (tokens[t] >= 0 && tokens[t] < vocab) ++start[tokens[t] + 1];
    }
    for (int64_t v = 0; v < vocab; ++v) start[v + 1] += start[v];
    std::vector<int64_t> next(start.begin(), start.end() - 1);
    for (int64_t t = 0; t < count; ++t) {
      if (tokens[t] >= 0 && tokens[t] < vocab) order[next[tokens[t]]++] = t;
    }
  }
};

template <class T, class G>
void backward(RankContext& ctx, const EmbeddingBackward& b) {
  const TokensByRow users(b.tokens.data<int32_t>(), b.p.tokens, b.p.vocab);
  const auto dy = rows_of<T>(b.dy);
  const auto dw = rows_of<G>(b.dweight.tensor);
  ctx.pool().parallel_for(b.p.vocab, row_grain(b.p.cols), [&](int64_t begin, int64_t end) {
    std::vector<Accum<T>> sum(static_cast<std::size_t>(b.p.cols));
    for (int64_t v = begin; v < end; ++v) {
      std::fill(sum.begin(), sum.end(), Accum<T>(0));
      for (int64_t i = users.start[v]; i < users.start[v + 1]; ++i) {
        for (int64_t c = 0; c < b.p.cols; ++c) sum[c] += widen(dy[users.order[i]][c]);
      }
      for (int64_t c = 0; c < b.p.cols; ++c) put(dw[v][c], sum[c], b.dweight.accumulate);
    }
  });
}

}  // namespace

void embedding_cpu_naive_backward(RankContext& ctx, const EmbeddingBackward& b) {
  with_float(b.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_grad_type<T>(b.dweight, [&](auto g) { backward<T, decltype(g)>(ctx, b); });
  });
}

}  // namespace kiln
