// All-reduce: the sum of one gradient over ranks, whose partial sums travel in the gradients' dtype. Ring and
// tree are simulated, all ranks in one loop; the op row is the collective that runs of this process take.
#include <algorithm>
#include <bit>
#include <chrono>

#include "autograd/host_floats.h"
#include "dist/comm/reduce_ranks.h"
#include "dist/comm/threads/thread_group.h"
#include "studies/precision/sum_table.h"

namespace kiln {
namespace {

struct Gradients {
  std::vector<std::vector<float>> of_rank;
  std::vector<double> sum;  // right
};

// Mean and deviation alike, each rank's share of the mean over ranks.
Gradients draw_gradients(const SumRequest& r) {
  const PhiloxKey key = philox_key(r.seed, "all-reduce gradients");
  Gradients g{{}, std::vector<double>(static_cast<std::size_t>(r.elements))};
  uint64_t at = 0;
  for (int rank = 0; rank < r.ranks; ++rank) {
    std::vector<float>& mine = g.of_rank.emplace_back();
    for (int64_t i = 0; i < r.elements; ++i) {
      mine.push_back(draw_held(key, at++, 1, 1.0 / r.ranks));
      g.sum[static_cast<std::size_t>(i)] += static_cast<double>(mine.back());
    }
  }
  return g;
}

// The rank whose value element i starts from: of a ring, each rank begins with its own piece.
int first_of(const SumRequest& r, int64_t i) {
  return static_cast<int>(i * r.ranks / std::max<int64_t>(1, r.elements));
}

template <class A>
void ring(const SumRequest& r, const std::vector<std::vector<A>>& of_rank, std::vector<float>& out) {
  for (int64_t i = 0; i < r.elements; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const int first = first_of(r, i);
    auto rank = static_cast<std::size_t>(first);
    A sum = of_rank[rank][at];
    for (int hop = 1; hop < r.ranks; ++hop) {
      if (++rank == of_rank.size()) rank = 0;
      sum = A(static_cast<float>(sum) + static_cast<float>(of_rank[rank][at]));
    }
    out[at] = static_cast<float>(sum);
  }
}

template <class A>
void tree(const SumRequest& r, const std::vector<std::vector<A>>& of_rank, std::vector<float>& out) {
  std::vector<A> held(of_rank.size());
  for (int64_t i = 0; i < r.elements; ++i) {
    const auto at = static_cast<std::size_t>(i);
    for (std::size_t rank = 0; rank < held.size(); ++rank) held[rank] = of_rank[rank][at];
    for (std::size_t apart = 1; apart < held.size(); apart *= 2)
      for (std::size_t rank = 0; rank + apart < held.size(); rank += 2 * apart)
        held[rank] = A(static_cast<float>(held[rank]) + static_cast<float>(held[rank + apart]));
    out[at] = static_cast<float>(held[0]);
  }
}

// What a rank sends, whatever the order: all but its own piece on the way to the sums, and again on the way
// back.
double sent_bytes(const SumRequest& r, DType dtype) {
  return 2.0 * (r.ranks - 1) / r.ranks * static_cast<double>(size_of(dtype));
}

SumRow loop_row(const SumRequest& r, const Gradients& g, DType dtype, bool is_ring) {
  SumRow row{"sum", dtype, is_ring ? "ring" : "tree", "loop, host"};
  row.roundings = is_ring ? r.ranks - 1 : std::bit_width(static_cast<unsigned>(r.ranks - 1));
  std::vector<float> out(g.sum.size());
  with_float(dtype, [&](auto zero) {
    using A = decltype(zero);
    if constexpr (!std::is_same_v<A, double>) {
      std::vector<std::vector<A>> held;
      for (const std::vector<float>& mine : g.of_rank) {
        held.emplace_back();
        for (float x : mine) held.back().push_back(A(x));
      }
      const auto body = [&] { is_ring ? ring(r, held, out) : tree(r, held, out); };
      row.ns = time_loop_ns(r, static_cast<double>(r.elements), body);
    }
  });
  PredictionNorm predicted_norm;
  std::vector<double> terms(g.of_rank.size());
  for (int64_t i = 0; i < r.elements; ++i) {
    const auto at = static_cast<std::size_t>(i),
               first = static_cast<std::size_t>(is_ring ? first_of(r, i) : 0);
    for (std::size_t k = 0; k < terms.size(); ++k)
      terms[k] = static_cast<double>(g.of_rank[(first + k) % terms.size()][at]);
    const FloatFormat format = format_of(dtype);
    predicted_norm.add(is_ring ? predict_sum(terms, format, SumMethod::plain) : predict_tree(terms, format),
                       g.sum[at]);
  }
  row.error = relative_error(out, g.sum);
  row.predicted = predicted_norm.predicted();
  row.bound = predicted_norm.bound();
  row.floor = rounded_once(g.sum, dtype);
  row.bytes = sent_bytes(r, dtype);
  return row;
}

// Every rank reads all others' pieces, adds them in fp32 in rank order, and rounds once.
SumRow op_row(const SumRequest& r, const Gradients& g, DType dtype) {
  SumRow row{"sum", dtype, "op", cat("all_reduce threads, ", r.device.str()), r.ranks - 1};
  std::vector<float> out(g.sum.size());
  double seconds = 0;
  const int64_t timed = std::max<int64_t>(1, r.timed() / r.ranks);
  RankOptions options;
  options.device = r.device;
  options.threads = 1;
  options.matmuls = false;
  run_thread_ranks(r.ranks, options, [&](RankContext& ctx, Communicator& comm) {
    const Tensor t = upload_as(ctx, {r.elements}, dtype, g.of_rank[static_cast<std::size_t>(ctx.rank())]);
    comm.all_reduce(ctx, t, "gradient").wait(ctx);
    if (ctx.rank() == 0) download_floats(ctx, t, out);
    const Tensor large = ctx.zeros({timed}, dtype);
    std::vector<double> samples;
    for (int i = 0; i < 8; ++i) {  // the same number on every rank; the first warms up
      ctx.synchronize();
      const auto begin = std::chrono::steady_clock::now();
      comm.all_reduce(ctx, large, "timed").wait(ctx);
      ctx.synchronize();
      if (i > 0)
        samples.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
    if (ctx.rank() == 0) seconds = summarize(std::move(samples)).p50;
  });
  PredictionNorm predicted_norm;
  std::vector<double> terms(g.of_rank.size());
  for (std::size_t i = 0; i < g.sum.size(); ++i) {
    for (std::size_t k = 0; k < terms.size(); ++k) terms[k] = static_cast<double>(g.of_rank[k][i]);
    SumPrediction f = predict_sum(terms, format_of(DType::f32), SumMethod::plain);
    add_term_rounding(f, spacing_if_rounded(g.sum[i], format_of(dtype)), 1);
    predicted_norm.add(f, g.sum[i]);
  }
  row.error = relative_error(out, g.sum);
  row.predicted = predicted_norm.predicted();
  row.bound = predicted_norm.bound();
  row.floor = rounded_once(g.sum, dtype);
  row.ns = 1e9 * seconds / static_cast<double>(timed);
  row.bytes = sent_bytes(r, dtype);
  return row;
}

}  // namespace

SumTable all_reduce_sums(const SumRequest& r) {
  if (r.ranks < 2 || r.ranks > kMaxThreadRanks)
    throw Error(cat("an all-reduce of ", r.ranks, " ranks"),
                cat("2 to ", kMaxThreadRanks, " is possible here"), ErrorKind::usage);
  SumTable table{
      "all_reduce", cat("all-reduce of gradients over ", r.ranks, " ranks"), "element of a rank", {}};
  const Gradients g = draw_gradients(r);
  for (bool is_ring : {true, false})
    for (DType dtype : kSumDTypes) table.rows.push_back(loop_row(r, g, dtype, is_ring));
  for (DType dtype : kSumDTypes) table.rows.push_back(op_row(r, g, dtype));
  fill_multiples(table);
  return table;
}

}  // namespace kiln
