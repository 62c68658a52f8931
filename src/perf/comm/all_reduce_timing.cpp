#include "perf/comm/all_reduce_timing.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "autograd/host_floats.h"

namespace kiln {
namespace {

// Small whole numbers: exact in every dtype, as are their sums over up to 80 ranks.
float term(int rank, int64_t i) { return static_cast<float>(1 + (rank + i) % 3); }

// Piece by piece, so that the check needs little memory of its own.
template <class Use>
void in_pieces(const Tensor& t, Use use) {
  constexpr int64_t kPiece = 1 << 20;
  for (int64_t first = 0; first < t.numel(); first += kPiece) {
    const int64_t n = std::min(kPiece, t.numel() - first);
    use(t.narrow(0, first, n), first, n);
  }
}

bool sums_are_right(RankContext& ctx, Communicator& ranks, const Tensor& t) {
  std::vector<float> host;
  in_pieces(t, [&](const Tensor& piece, int64_t first, int64_t n) {
    host.resize(static_cast<std::size_t>(n));
    for (int64_t i = 0; i < n; ++i) host[static_cast<std::size_t>(i)] = term(ranks.rank(), first + i);
    upload_floats(ctx, piece, host);
  });
  ranks.all_reduce(ctx, t, "check").wait(ctx);
  bool right = true;
  in_pieces(t, [&](const Tensor& piece, int64_t first, int64_t n) {
    host.resize(static_cast<std::size_t>(n));
    download_floats(ctx, piece, host);
    for (int64_t i = 0; i < n && right; ++i) {
      float sum = 0;
      for (int r = 0; r < ranks.world(); ++r) sum += term(r, first + i);
      right = host[static_cast<std::size_t>(i)] == sum;
    }
  });
  return right;
}

// Every rank's numbers, rank after rank.
std::vector<double> gathered(RankContext& ctx, Communicator& ranks, const std::vector<double>& mine) {
  const auto n = static_cast<int64_t>(mine.size());
  const Tensor part = ctx.empty({n}, DType::f64, Tag::comm),
               all = ctx.empty({n * ranks.world()}, DType::f64, Tag::comm);
  ctx.upload(part, mine.data());
  ranks.all_gather(ctx, part, all, "times").wait(ctx);
  std::vector<double> numbers(static_cast<std::size_t>(all.numel()));
  ctx.download(numbers.data(), all);
  return numbers;
}

}  // namespace

AllReduceTiming time_all_reduce(RankContext& ctx, Communicator& ranks, const AllReduceWork& work) {
  const Tensor t = ctx.zeros({work.count}, work.dtype, Tag::comm);
  AllReduceTiming result;
  const std::vector<double> right = gathered(ctx, ranks, {sums_are_right(ctx, ranks, t) ? 1.0 : 0.0});
  result.right = std::all_of(right.begin(), right.end(), [](double v) { return v == 1; });
  ctx.upload(t, std::vector<std::byte>(t.bytes().value).data());  // sums of zeros stay zeros
  auto once = [&] {
    ranks.barrier(ctx, "together");
    ctx.synchronize();
    const auto begun = std::chrono::steady_clock::now();
    ranks.all_reduce(ctx, t, "timed").wait(ctx);
    ctx.synchronize();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  };
  double last = once();
  for (int i = 1; i < work.warmups; ++i) last = once();
  // All ranks must take as many samples: the slowest one's last warm-up decides.
  const std::vector<double> lasts = gathered(ctx, ranks, {last});
  const double slowest = *std::max_element(lasts.begin(), lasts.end());
  const int samples = static_cast<int>(std::clamp(std::floor(work.seconds / std::max(slowest, 1e-9)),
                                                  double(work.least_samples), double(work.most_samples)));
  std::vector<double> mine;
  mine.reserve(static_cast<std::size_t>(samples));
  for (int i = 0; i < samples; ++i) mine.push_back(once());
  const std::vector<double> all = gathered(ctx, ranks, mine);
  std::vector<double> slowest_of(mine.size());
  for (int r = 0; r < ranks.world(); ++r) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(mine.size()) * r;
    std::vector<double> own(begin, begin + static_cast<std::ptrdiff_t>(mine.size()));
    for (std::size_t i = 0; i < own.size(); ++i) slowest_of[i] = std::max(slowest_of[i], own[i]);
    const double median = summarize(own).p50;
    result.fastest_rank = r == 0 ? median : std::min(result.fastest_rank, median);
    result.slowest_rank = std::max(result.slowest_rank, median);
  }
  result.timing = summarize(slowest_of);
  result.timing.warmups = work.warmups;
  return result;
}

}  // namespace kiln
