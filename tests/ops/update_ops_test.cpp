// The ops of the update: square_sum, finish_step_scalars, adamw, sgd, accumulate_loss. Against formulas
// written out here.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/rng.h"
#include "ops/adamw/adamw.h"
#include "ops/sgd/sgd.h"
#include "ops/step_scalars/step_scalars.h"
#include "support/gpu.h"

namespace kiln {
namespace {

class UpdateOps : public testing::TestWithParam<DeviceType> {
 protected:
  void SetUp() override {
    if (GetParam() == DeviceType::cuda) KILN_NEEDS_GPU();
    RankOptions o;
    o.device = GetParam() == DeviceType::cuda ? Device::cuda() : Device::cpu();
    o.threads = 2;
    ctx = std::make_unique<RankContext>(o);
    scalars = make_step_scalars(*ctx);
  }
  void TearDown() override { scalars = {}; }

  template <class T>
  Tensor upload(const std::vector<T>& v) {
    Tensor t = ctx->empty({static_cast<int64_t>(v.size())}, dtype_of<T>());
    ctx->upload(t, v.data());
    return t;
  }
  template <class T>
  std::vector<T> read(const Tensor& t) {
    std::vector<T> v(static_cast<std::size_t>(t.numel()));
    ctx->download(v.data(), t);
    return v;
  }
  StepScalars record() {
    StepScalars s;
    ctx->download(&s, scalars);
    return s;
  }
  void set(const StepScalars& s) { ctx->upload(scalars, &s); }

  // On the CPU also once per instruction set.
  template <class F>
  void on_every_variant(F f) {
    if (GetParam() == DeviceType::cuda) {
      f("naive");
      f("fused");
      return;
    }
    f("naive");
    for (int isa = 0; isa <= static_cast<int>(best_cpu_isa()); ++isa) {
      SCOPED_TRACE(name_of(static_cast<CpuIsa>(isa)));
      RankOptions o;
      o.threads = 2;
      o.cpu_isa = static_cast<CpuIsa>(isa);
      scalars = {};
      ctx = std::make_unique<RankContext>(o);
      scalars = make_step_scalars(*ctx);
      f("fused");
    }
  }

  std::unique_ptr<RankContext> ctx;
  Tensor scalars;
};

std::vector<float> normals(int64_t n, const char* name, float scale = 1) {
  std::vector<float> v;
  for (int64_t i = 0; i < n; ++i)
    v.push_back(scale * philox_normal(philox_key(1, name), static_cast<uint64_t>(i)));
  return v;
}

TEST_P(UpdateOps, SquareSumOverAnySize) {
  on_every_variant([&](const char* variant) {
    for (int64_t n : {1, 31, 33, 8192, 8193, 100003, 2300003}) {
      const auto g = normals(n, "g");
      double expected = 0;
      for (double v : g) expected += v * v;
      square_sum(*ctx, upload(g), scalars, variant);
      EXPECT_NEAR(record().square_sum / expected, 1, 1e-12) << n;
      std::vector<bf16> narrow;
      expected = 0;
      for (float v : g) {
        narrow.push_back(bf16(v));
        expected += static_cast<double>(static_cast<float>(narrow.back())) *
                    static_cast<double>(static_cast<float>(narrow.back()));
      }
      square_sum(*ctx, upload(narrow), scalars, variant);
      EXPECT_NEAR(record().square_sum / expected, 1, 1e-12) << n;
    }
  });
}

// Ranges of all sizes, some from odd places on, more of them than a launch takes.
TEST_P(UpdateOps, SquareSumOfManyRanges) {
  on_every_variant([&](const char* variant) {
    const auto g = normals(900000, "g");
    const Tensor all = upload(g);
    std::vector<Tensor> ranges;
    double expected = 0;
    int64_t at = 0;
    for (const int64_t n : {9000, 0, 11, 1, 70000}) {
      for (int i = 0; i < 60 && at + n <= all.numel(); ++i) {
        ranges.push_back(all.narrow(0, at, n));
        at += n;
      }
    }
    ASSERT_GT(ranges.size(), 240u);
    for (int64_t i = 0; i < at; ++i) expected += static_cast<double>(g[i]) * static_cast<double>(g[i]);
    square_sum(*ctx, ranges, scalars, variant);
    EXPECT_NEAR(record().square_sum / expected, 1, 1e-12);
    const double again = record().square_sum;
    square_sum(*ctx, ranges, scalars, variant);
    EXPECT_EQ(record().square_sum, again);
    square_sum(*ctx, std::span<const Tensor>(ranges).first(1), scalars, variant);
    const double first = record().square_sum;
    square_sum(*ctx, ranges[0], scalars, variant);
    EXPECT_EQ(record().square_sum, first);
    square_sum(*ctx, std::span<const Tensor>(), scalars, variant);
    EXPECT_EQ(record().square_sum, 0);
  });
  const std::vector<Tensor> mixed = {upload(std::vector<float>(4)), upload(std::vector<bf16>(4))};
  EXPECT_THROW(square_sum(*ctx, mixed, scalars), Error);
}

// From an odd place on, as a rank's share of the gradients may begin; squares beyond fp32's range count.
TEST_P(UpdateOps, SquareSumOfAPartAndOfExtremes) {
  on_every_variant([&](const char* variant) {
    const int64_t n = 20011;
    const auto g = normals(n, "g");
    double expected = 0;
    for (int64_t i = 3; i < n; ++i) expected += static_cast<double>(g[i]) * static_cast<double>(g[i]);
    square_sum(*ctx, upload(g).narrow(0, 3, n - 3), scalars, variant);
    EXPECT_NEAR(record().square_sum / expected, 1, 1e-12);
    square_sum(*ctx, upload(std::vector<float>{1e30f, 1e30f}), scalars, variant);
    EXPECT_NEAR(record().square_sum / 2e60, 1, 1e-6);
    square_sum(*ctx, upload(std::vector<float>{1e-30f}), scalars, variant);
    EXPECT_NEAR(record().square_sum / 1e-60, 1, 1e-6);
    std::vector<float> bad(100, 1.0f);
    bad[77] = std::nanf("");
    square_sum(*ctx, upload(bad), scalars, variant);
    EXPECT_TRUE(std::isnan(record().square_sum));
  });
}

TEST_P(UpdateOps, JudgeClipsCountsAndRefuses) {
  StepScalars s;
  s.attempt = 1;
  s.square_sum = 25;
  set(s);
  finish_step_scalars(*ctx, scalars, 2, {0.9, 0.99});
  s = record();
  EXPECT_EQ(s.grad_norm, 5);
  EXPECT_EQ(s.clip, 0.4);
  EXPECT_EQ(s.step, 1);
  EXPECT_EQ(s.rate1_power, 0.9);
  EXPECT_EQ(s.rate2_power, 0.99);
  finish_step_scalars(*ctx, scalars, 0, {0.9, 0.99});  // no clipping
  EXPECT_EQ(record().clip, 1);
  EXPECT_EQ(record().step, 2);

  for (double bad : {std::nan(""), static_cast<double>(INFINITY)}) {
    for (bool in_loss : {false, true}) {
      s = StepScalars();
      s.attempt = 7;
      (in_loss ? s.loss : s.square_sum) = bad;
      set(s);
      finish_step_scalars(*ctx, scalars, 1, {0.9, 0.99});
      EXPECT_EQ(record().bad_attempt, 7);
      EXPECT_EQ(record().step, 0);
      EXPECT_EQ(record().rate1_power, 1);
      s = record();
      s.attempt = 8;
      s.loss = s.square_sum = 1;
      set(s);
      finish_step_scalars(*ctx, scalars, 1, {0.9, 0.99});
      EXPECT_EQ(record().bad_attempt, 7) << "once bad, always bad";
      EXPECT_EQ(record().step, 0);
    }
  }
}

TEST_P(UpdateOps, JudgeFollowsTheLossScale) {
  StepScalars s;
  s.attempt = 1;
  s.loss_scale = 8;
  s.square_sum = 64 * 25;  // of gradients 8 times too large
  set(s);
  finish_step_scalars(*ctx, scalars, 2, {0.9, 0.99}, 2);
  s = record();
  EXPECT_EQ(s.grad_norm, 5);
  EXPECT_EQ(s.clip, 0.4);
  EXPECT_EQ(s.unscale, 0.125);
  EXPECT_EQ(s.grad_factor(), 0.05);
  EXPECT_EQ(s.good_steps, 1);
  EXPECT_EQ(s.loss_scale, 8);
  finish_step_scalars(*ctx, scalars, 2, {0.9, 0.99}, 2);  // the second good one
  EXPECT_EQ(record().loss_scale, 16);
  EXPECT_EQ(record().unscale, 0.125) << "these gradients were made at 8";
  EXPECT_EQ(record().good_steps, 0);

  for (double scale : {16.0, 8.0, 4.0, 2.0, 1.5}) {  // an overflow at each
    s = record();
    s.attempt += 1;
    s.loss_scale = scale;
    s.square_sum = INFINITY;
    set(s);
    finish_step_scalars(*ctx, scalars, 2, {0.9, 0.99}, 2);
    EXPECT_EQ(record().skip, 1);
    EXPECT_FALSE(record().updates());
    EXPECT_EQ(record().bad_attempt, 0);
    EXPECT_EQ(record().loss_scale, std::max(1.0, scale / 2));
    EXPECT_EQ(record().step, 2);
  }
  EXPECT_EQ(record().skipped, 5);
  s = record();
  s.square_sum = 1;
  set(s);
  finish_step_scalars(*ctx, scalars, 2, {0.9, 0.99}, 2);
  EXPECT_EQ(record().skip, 0) << "the next step is judged by itself";
  EXPECT_EQ(record().step, 3);
  s = record();
  s.attempt = 9;
  s.loss_scale = 1;
  s.square_sum = std::nan("");
  set(s);
  finish_step_scalars(*ctx, scalars, 2, {0.9, 0.99}, 2);
  EXPECT_EQ(record().bad_attempt, 9) << "nothing is smaller than 1";
  s = StepScalars();
  s.attempt = 4;
  s.loss_scale = 8;
  s.loss = std::nan("");
  set(s);
  finish_step_scalars(*ctx, scalars, 2, {0.9, 0.99}, 2);
  EXPECT_EQ(record().bad_attempt, 4) << "the loss is not scaled";
  EXPECT_EQ(record().loss_scale, 8);
}

TEST_P(UpdateOps, TheScaleGrowsNoFurtherThanADouble) {
  StepScalars s;
  s.loss_scale = 0x1p1023;
  set(s);
  finish_step_scalars(*ctx, scalars, 0, {0.9, 0.99}, 1);
  EXPECT_EQ(record().loss_scale, 0x1p1023);
}

TEST_P(UpdateOps, LossGradientIsTheShareTimesTheScale) {
  StepScalars s;
  s.loss_scale = 1024;
  set(s);
  const Tensor narrow = upload(std::vector<float>{0}), wide = upload(std::vector<double>{0});
  loss_gradient(*ctx, scalars, 0.125, narrow);
  loss_gradient(*ctx, scalars, 1.0 / 3, wide);
  EXPECT_EQ(read<float>(narrow)[0], 128);
  EXPECT_EQ(read<double>(wide)[0], 1024.0 / 3);
}

TEST_P(UpdateOps, AccumulateLoss) {
  const Tensor loss = upload(std::vector<float>{3});
  accumulate_loss(*ctx, loss, scalars, true, 0.5);
  EXPECT_EQ(record().loss, 1.5);
  accumulate_loss(*ctx, loss, scalars, false, 0.25);
  EXPECT_EQ(record().loss, 2.25);
}

TEST_P(UpdateOps, AdamWFollowsItsFormula) {
  on_every_variant([&](const char* variant) {
    const int64_t n = 1003;
    const auto w0 = normals(n, "w"), g = normals(n, "g");
    const double b1 = 0.9, b2 = 0.95, eps = 1e-8, decay = 0.1, lr = 0.02, clip = 0.5;
    const Tensor w = upload(w0), grad = upload(g), none;
    const Tensor m = ctx->zeros({n}, DType::f32), v = ctx->zeros({n}, DType::f32);
    std::vector<double> rw(w0.begin(), w0.end()), rm(n), rv(n);
    for (int t = 1; t <= 3; ++t) {
      StepScalars s;
      s.lr = lr;
      s.clip = clip;
      s.step = t;
      s.rate1_power = std::pow(b1, t);
      s.rate2_power = std::pow(b2, t);
      set(s);
      adamw(*ctx, {w, none, grad, m, v}, scalars, b1, b2, eps, decay, variant);
      for (int64_t i = 0; i < n; ++i) {
        const double gi = clip * static_cast<double>(g[i]);
        rm[i] = b1 * rm[i] + (1 - b1) * gi;
        rv[i] = b2 * rv[i] + (1 - b2) * gi * gi;
        rw[i] -= lr * (rm[i] / (1 - std::pow(b1, t)) / (std::sqrt(rv[i] / (1 - std::pow(b2, t))) + eps) +
                       decay * rw[i]);
      }
    }
    const auto got = read<float>(w);
    for (int64_t i = 0; i < n; ++i) ASSERT_NEAR(got[i], rw[i], 2e-6) << i;
  });
}

TEST_P(UpdateOps, SplitWeightsAreTheFp32OnesBitForBit) {
  on_every_variant([&](const char* variant) {
    const int64_t n = 517;
    const auto w0 = normals(n, "w");
    std::vector<bf16> high;
    std::vector<int16_t> low;
    for (float f : w0) {
      high.push_back(split_float(f).high);
      low.push_back(split_float(f).low);
    }
    const Tensor w = upload(w0), h = upload(high), l = upload(low), none;
    Tensor m1 = ctx->zeros({n}, DType::f32), v1 = ctx->zeros({n}, DType::f32),
           m2 = ctx->zeros({n}, DType::f32), v2 = ctx->zeros({n}, DType::f32);
    for (int t = 1; t <= 4; ++t) {
      StepScalars s;
      s.lr = 1e-2;
      s.step = t;
      s.rate1_power = std::pow(0.9, t);
      s.rate2_power = std::pow(0.999, t);
      set(s);
      const Tensor grad = upload(normals(n, t % 2 ? "a" : "b"));
      adamw(*ctx, {w, none, grad, m1, v1}, scalars, 0.9, 0.999, 1e-8, 0.01, variant);
      adamw(*ctx, {h, l, grad, m2, v2}, scalars, 0.9, 0.999, 1e-8, 0.01, variant);
    }
    const auto a = read<float>(w);
    const auto hi = read<bf16>(h);
    const auto lo = read<int16_t>(l);
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(join_float(hi[i], lo[i]), a[i]);
  });
}

// pure-bf16: moments and weights are rounded to bf16 after every step, computed in fp32 between.
TEST_P(UpdateOps, NarrowMomentsAreRoundedAfterEveryStep) {
  on_every_variant([&](const char* variant) {
    const int64_t n = 517;
    const auto g0 = normals(n, "g");
    std::vector<bf16> w0, g;
    for (float f : normals(n, "w")) w0.push_back(bf16(f));
    for (float f : g0) g.push_back(bf16(f));
    const Tensor w = upload(w0), grad = upload(g), m = ctx->zeros({n}, DType::bf16),
                 v = ctx->zeros({n}, DType::bf16), none;
    std::vector<bf16> rw = w0, rm(n), rv(n);
    auto wide = [](bf16 x) { return static_cast<float>(x); };
    for (int t = 1; t <= 3; ++t) {
      StepScalars s;
      s.lr = 0.02;
      s.clip = 0.5;
      s.unscale = 0.25;
      s.rate1_power = std::pow(0.9, t);
      s.rate2_power = std::pow(0.95, t);
      set(s);
      adamw(*ctx, {w, none, grad, m, v}, scalars, 0.9, 0.95, 1e-8, 0.1, variant);
      const AdamWStep<float> step(
          AdamWProblem{n, DType::bf16, DType::bf16, false, 0.9, 0.95, 1e-8, 0.1, DType::bf16}, s);
      for (int64_t i = 0; i < n; ++i) {
        float mi = wide(rm[i]), vi = wide(rv[i]);
        rw[i] = bf16(step.update(wide(rw[i]), wide(g[i]), mi, vi));
        rm[i] = bf16(mi);
        rv[i] = bf16(vi);
      }
    }
    const auto got = read<bf16>(w), got_m = read<bf16>(m);
    int64_t off = 0;
    for (int64_t i = 0; i < n;
         ++i) {  // where a variant's last bit differs, the rounding may go the other way
      ASSERT_NEAR(wide(got[i]), wide(rw[i]), std::abs(wide(rw[i])) * 0x1p-6f + 1e-6f) << i;
      ASSERT_NEAR(wide(got_m[i]), wide(rm[i]), std::abs(wide(rm[i])) * 0x1p-6f) << i;
      off += got[i].bits != rw[i].bits;
    }
    EXPECT_LE(off, n / 20);
    const Tensor wrong = ctx->zeros({n}, DType::f16);
    EXPECT_THROW(adamw(*ctx, {w, none, grad, wrong, wrong}, scalars, 0.9, 0.95, 1e-8, 0.1, variant), Error);
  });
}

TEST_P(UpdateOps, SgdFollowsItsFormulaAndSplitWeightsAreTheFp32Ones) {
  const Tensor none;
  const int64_t n = 517;
  const auto w0 = normals(n, "w"), g = normals(n, "g");
  for (double momentum : {0.0, 0.9}) {
    std::vector<bf16> high;
    std::vector<int16_t> low;
    for (float f : w0) {
      high.push_back(split_float(f).high);
      low.push_back(split_float(f).low);
    }
    const Tensor w = upload(w0), h = upload(high), l = upload(low), grad = upload(g);
    const Tensor b1 = momentum != 0 ? ctx->zeros({n}, DType::f32) : none,
                 b2 = momentum != 0 ? ctx->zeros({n}, DType::f32) : none;
    std::vector<double> rw(w0.begin(), w0.end()), rb(n);
    StepScalars s;
    s.lr = 0.02;
    s.clip = 0.5;
    set(s);
    for (int t = 0; t < 3; ++t) {
      sgd(*ctx, w, none, grad, b1, scalars, momentum, 0.1);
      sgd(*ctx, h, l, grad, b2, scalars, momentum, 0.1);
      for (int64_t i = 0; i < n; ++i) {
        rb[i] = momentum * rb[i] + 0.5 * static_cast<double>(g[i]) + 0.1 * rw[i];
        rw[i] -= 0.02 * rb[i];
      }
    }
    const auto got = read<float>(w);
    const auto hi = read<bf16>(h);
    const auto lo = read<int16_t>(l);
    for (int64_t i = 0; i < n; ++i) {
      ASSERT_NEAR(got[i], rw[i], 2e-6) << i;
      ASSERT_EQ(join_float(hi[i], lo[i]), got[i]) << i;
    }
    s.bad_attempt = 1;
    set(s);
    sgd(*ctx, w, none, grad, b1, scalars, momentum, 0.1);
    EXPECT_EQ(read<float>(w), got) << "a step that is not finite writes nothing";
  }
}

// Bounds that no vector width divides, and a run that takes whole chunks.
TEST_P(UpdateOps, AdamWOverARangeIsAdamWOnEachParameter) {
  on_every_variant([&](const char* variant) {
    if (std::string_view(variant) != "fused") return;
    const std::vector<int64_t> sizes = {1, 20000, 33, 7, 16384, 515};
    std::vector<DecaySegment> segments;
    int64_t n = 0;
    for (std::size_t i = 0; i < sizes.size(); ++i) segments.push_back({n += sizes[i], i % 2 ? 0.0 : 0.1});
    const Tensor table = make_decay_segments(*ctx, segments), none;
    const Tensor w = upload(normals(n, "w")), each = upload(normals(n, "w")), grad = upload(normals(n, "g"));
    const Tensor m1 = ctx->zeros({n}, DType::f32), v1 = ctx->zeros({n}, DType::f32),
                 m2 = ctx->zeros({n}, DType::f32), v2 = ctx->zeros({n}, DType::f32);
    StepScalars s;
    s.lr = 0.01;
    s.clip = 0.7;
    s.step = 1;
    s.rate1_power = 0.9;
    s.rate2_power = 0.999;
    set(s);
    adamw_range(*ctx, {w, none, grad, m1, v1}, scalars, 0.9, 0.999, 1e-8, table, variant);
    int64_t at = 0;
    for (const DecaySegment& d : segments) {
      auto part = [&](const Tensor& t) { return t.narrow(0, at, d.end - at); };
      adamw(*ctx, {part(each), none, part(grad), part(m2), part(v2)}, scalars, 0.9, 0.999, 1e-8, d.decay,
            variant);
      at = d.end;
    }
    EXPECT_EQ(read<float>(w), read<float>(each));
    EXPECT_EQ(read<float>(v1), read<float>(v2));
  });
}

TEST_P(UpdateOps, ANonFiniteStepWritesNothing) {
  on_every_variant([&](const char* variant) {
    const auto w0 = normals(100, "w");
    const Tensor w = upload(w0), g = upload(normals(100, "g")), m = ctx->zeros({100}, DType::f32),
                 v = ctx->zeros({100}, DType::f32);
    StepScalars s;
    s.lr = 1;
    s.bad_attempt = 3;
    set(s);
    adamw(*ctx, {w, Tensor(), g, m, v}, scalars, 0.9, 0.999, 1e-8, 0.01, variant);
    EXPECT_EQ(read<float>(w), w0);
    EXPECT_EQ(read<float>(m), std::vector<float>(100, 0.0f));
  });
}

std::string device_label(const testing::TestParamInfo<DeviceType>& info) {
  return std::string(name_of(info.param));
}
INSTANTIATE_TEST_SUITE_P(Cpu, UpdateOps, testing::Values(DeviceType::cpu), device_label);
INSTANTIATE_TEST_SUITE_P(Cuda, UpdateOps, testing::Values(DeviceType::cuda), device_label);

}  // namespace
}  // namespace kiln
