#include "dist/launch/collectives_check.h"

#include <algorithm>
#include <chrono>

#include "autograd/host_floats.h"
#include "base/rng.h"

namespace kiln {
namespace {

using Values = std::vector<float>;

// Whole numbers that every dtype holds exactly, so equality is exact: one that tells ranks apart, and a small
// one whose sum over 80 ranks is exact too.
float value_of(int rank, int64_t i) { return static_cast<float>(rank % 40 * 5 + i % 5); }
float term_of(int rank, int64_t i) { return static_cast<float>(1 + (rank + i) % 3); }

// One collective at one size, with what it should give.
class Checker {
 public:
  Checker(RankContext& ctx, Communicator& ranks)
      : ctx_(ctx), ranks_(ranks), world_(ranks.world()), rank_(ranks.rank()) {}

  std::vector<CollectiveCheck> all() {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const int64_t count : {1, 1031, 65537}) at(dtype, count);
    }
    barrier();
    if (world_ > 1) split();
    return std::move(checks_);
  }

 private:
  Tensor filled(int64_t count, DType dtype, float (*value)(int, int64_t)) {
    Values v(static_cast<std::size_t>(count));
    for (int64_t i = 0; i < count; ++i) v[static_cast<std::size_t>(i)] = value(rank_, i);
    const Tensor t = ctx_.empty({count}, dtype, Tag::comm);
    upload_floats(ctx_, t, v);
    return t;
  }
  template <class Expected>
  bool holds(const Tensor& t, Expected expected) {
    Values v(static_cast<std::size_t>(t.numel()));
    download_floats(ctx_, t, v);
    for (std::size_t i = 0; i < v.size(); ++i) {
      if (v[i] != expected(static_cast<int64_t>(i))) return false;
    }
    return true;
  }
  float sum_of(int64_t i) const {
    float s = 0;
    for (int r = 0; r < world_; ++r) s += term_of(r, i);
    return s;
  }

  template <class Call, class Right>
  void check(std::string name, DType dtype, int64_t count, Call call, Right right) {
    ctx_.synchronize();
    const auto begun = std::chrono::steady_clock::now();
    call();
    ctx_.synchronize();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
    CollectiveCheck c{std::move(name), dtype, count, {}, 0};
    const Tensor mine = ctx_.empty({2}, DType::f64, Tag::comm),
                 all = ctx_.empty({2 * world_}, DType::f64, Tag::comm);
    const std::array<double, 2> said = {right() ? 0.0 : 1.0, seconds};
    ctx_.upload(mine, said.data());
    ranks_.all_gather(ctx_, mine, all, "results").wait(ctx_);
    std::vector<double> results(static_cast<std::size_t>(2 * world_));
    ctx_.download(results.data(), all);
    for (int r = 0; r < world_; ++r) {
      const std::size_t at = 2 * static_cast<std::size_t>(r);
      if (results[at] != 0) c.wrong.push_back(r);
      c.seconds = std::max(c.seconds, results[at + 1]);
    }
    checks_.push_back(std::move(c));
  }

  void at(DType dtype, int64_t count) {
    const Tensor sum = filled(count, dtype, term_of);
    check(
        "all_reduce", dtype, count, [&] { ranks_.all_reduce(ctx_, sum, "check").wait(ctx_); },
        [&] { return holds(sum, [&](int64_t i) { return sum_of(i); }); });
    const Tensor shard = filled(count, dtype, value_of),
                 full = ctx_.empty({count * world_}, dtype, Tag::comm);
    check(
        "all_gather", dtype, count, [&] { ranks_.all_gather(ctx_, shard, full, "check").wait(ctx_); },
        [&] {
          return holds(full, [&](int64_t i) { return value_of(static_cast<int>(i / count), i % count); });
        });
    const Tensor whole = filled(count * world_, dtype, term_of), part = ctx_.empty({count}, dtype, Tag::comm);
    check(
        "reduce_scatter", dtype, count * world_,
        [&] { ranks_.reduce_scatter(ctx_, whole, part, "check").wait(ctx_); },
        [&] { return holds(part, [&](int64_t i) { return sum_of(rank_ * count + i); }); });
    in_place(dtype, count);
    const int root = world_ - 1;
    const Tensor toward = filled(count, dtype, term_of);
    check(
        "reduce", dtype, count, [&] { ranks_.reduce(ctx_, toward, root, "check").wait(ctx_); },
        [&] { return rank_ != root || holds(toward, [&](int64_t i) { return sum_of(i); }); });
    const Tensor told = filled(count, dtype, value_of);
    check(
        "broadcast", dtype, count, [&] { ranks_.broadcast(ctx_, told, root, "check").wait(ctx_); },
        [&] { return holds(told, [&](int64_t i) { return value_of(root, i); }); });
    if (world_ == 1) return;
    const int next = (rank_ + 1) % world_, previous = (rank_ + world_ - 1) % world_;
    const Tensor out = filled(count, dtype, value_of), in = ctx_.empty({count}, dtype, Tag::comm);
    check(
        "send_recv", dtype, count,
        [&] { ranks_.send_recv(ctx_, out, next, in, previous, "check").wait(ctx_); },
        [&] { return holds(in, [&](int64_t i) { return value_of(previous, i); }); });
    const Tensor passed = filled(count, dtype, value_of);
    check(
        "send, recv", dtype, count,
        [&] {  // from the first rank to the last
          if (rank_ == 0) ranks_.send(ctx_, passed, world_ - 1, "check").wait(ctx_);
          if (rank_ == world_ - 1) ranks_.recv(ctx_, passed, 0, "check").wait(ctx_);
        },
        [&] {
          const int from = rank_ == world_ - 1 ? 0 : rank_;
          return holds(passed, [&](int64_t i) { return value_of(from, i); });
        });
  }

  // A shard may lie at its own place in the whole: ZeRO sends weights and gradients so.
  void in_place(DType dtype, int64_t count) {
    const Tensor full = ctx_.empty({count * world_}, dtype, Tag::comm),
                 mine = full.narrow(0, count * rank_, count);
    ctx_.backend().copy_within(mine.raw(), filled(count, dtype, value_of).raw(), mine.bytes().value,
                               ctx_.compute());
    check(
        "all_gather in place", dtype, count, [&] { ranks_.all_gather(ctx_, mine, full, "check").wait(ctx_); },
        [&] {
          return holds(full, [&](int64_t i) { return value_of(static_cast<int>(i / count), i % count); });
        });
    const Tensor whole = filled(count * world_, dtype, term_of), part = whole.narrow(0, count * rank_, count);
    check(
        "reduce_scatter in place", dtype, count * world_,
        [&] { ranks_.reduce_scatter(ctx_, whole, part, "check").wait(ctx_); },
        [&] { return holds(part, [&](int64_t i) { return sum_of(rank_ * count + i); }); });
  }

  void barrier() {
    check("barrier", DType::f32, 0, [&] { ranks_.barrier(ctx_, "check"); }, [] { return true; });
  }

  // Two groups, of even and of odd ranks, the latter in reverse.
  void split() {
    const Tensor t = filled(1031, DType::f32, term_of);
    std::unique_ptr<Communicator> group;
    check(
        "split", DType::f32, t.numel(),
        [&] {
          group = ranks_.split(ctx_, rank_ % 2, rank_ % 2 == 0 ? rank_ : -rank_);
          group->all_reduce(ctx_, t, "group").wait(ctx_);
        },
        [&] {
          const int size = (world_ + 1 - rank_ % 2) / 2;
          const int place = rank_ % 2 == 0 ? rank_ / 2 : size - 1 - rank_ / 2;
          return group->world() == size && group->rank() == place && holds(t, [&](int64_t i) {
                   float s = 0;
                   for (int r = rank_ % 2; r < world_; r += 2) s += term_of(r, i);
                   return s;
                 });
        });
  }

  RankContext& ctx_;
  Communicator& ranks_;
  int world_, rank_;
  std::vector<CollectiveCheck> checks_;
};

std::vector<std::array<int, 3>> gathered(RankContext& ctx, Communicator& ranks, const Tensor& mine) {
  const Tensor all = ctx.empty({3 * ranks.world()}, DType::f32, Tag::comm);
  ranks.all_gather(ctx, mine, all, "numbers").wait(ctx);
  Values v(static_cast<std::size_t>(all.numel()));
  download_floats(ctx, all, v);
  std::vector<std::array<int, 3>> rows(static_cast<std::size_t>(ranks.world()));
  for (std::size_t i = 0; i < v.size(); ++i) rows[i / 3][i % 3] = static_cast<int>(v[i]);
  return rows;
}

}  // namespace

bool CollectivesReport::passed() const {
  return std::all_of(checks.begin(), checks.end(),
                     [](const CollectiveCheck& c) { return c.wrong.empty(); }) &&
         std::all_of(after.begin(), after.end(), [&](const auto& row) { return row == after.front(); });
}

CollectivesReport check_collectives(RankContext& ctx, Communicator& ranks, uint64_t seed) {
  CollectivesReport report;
  report.transport = std::string(ranks.transport());
  report.world = ranks.world();
  const Philox4 drawn = philox(philox_key(seed, "hello"), static_cast<uint64_t>(ranks.rank()), 0);
  const Values numbers = {static_cast<float>(drawn.x % 10), static_cast<float>(drawn.y % 10),
                          static_cast<float>(drawn.z % 10)};
  const Tensor mine = ctx.empty({3}, DType::f32, Tag::comm);
  upload_floats(ctx, mine, numbers);
  report.before = gathered(ctx, ranks, mine);
  ranks.all_reduce(ctx, mine, "numbers").wait(ctx);
  report.after = gathered(ctx, ranks, mine);
  report.checks = Checker(ctx, ranks).all();
  return report;
}

}  // namespace kiln
