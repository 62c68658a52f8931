// cast: to the bit, since a conversion has one right answer.
#include "ops/cast/cast.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "autograd/cast_values.h"
#include "autograd/tape.h"
#include "base/rng.h"
#include "ops/cpu_rows.h"
#include "support/gpu.h"

namespace kiln {
namespace {

// Numbers of all sizes, and those at which formats end.
std::vector<double> numbers(int64_t count) {
  std::vector<double> v = {0.0,    -0.0,    1.0,     65504.0, 65519.9, 65520.0,  -70000.0,  6e-8,
                           2.9e-8, 1.00390, 1.01171, 3.4e38,  1e-40,   INFINITY, -INFINITY, NAN};
  const PhiloxKey key = philox_key(3, "numbers");
  for (uint64_t i = v.size(); i < static_cast<uint64_t>(count); ++i) {
    const double size = std::ldexp(1.0, static_cast<int>(philox(key, i, 1).x % 60) - 30);
    v.push_back(size * static_cast<double>(philox_normal(key, i)));
  }
  v.resize(static_cast<std::size_t>(count));
  return v;
}

template <class T>
std::vector<T> as(const std::vector<double>& values) {
  std::vector<T> out;
  for (double v : values) out.push_back(static_cast<T>(static_cast<Accum<T>>(v)));
  return out;
}

template <class T>
std::vector<T> read(RankContext& ctx, const Tensor& t) {
  std::vector<T> v(static_cast<std::size_t>(t.numel()));
  if (!v.empty()) ctx.download(v.data(), t);
  return v;
}

template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {  // bits, but any NaN is as good as another
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double x = static_cast<double>(widen(a[i])), y = static_cast<double>(widen(b[i]));
    if (std::isnan(x) != std::isnan(y)) return false;
    if (!std::isnan(x) && (x != y || std::signbit(x) != std::signbit(y))) return false;
  }
  return a.size() == b.size();
}

constexpr DType kFloats[] = {DType::f64, DType::f32, DType::bf16, DType::f16};

// Every pair of dtypes: forward, and back with the gradient, written and added.
void expect_exact(RankContext& ctx, DType from, DType to, const Shape& shape, std::string_view variant) {
  const std::string what = cat(name_of(from), " to ", name_of(to), " ", shape.str(), " ", variant);
  with_float(from, [&](auto source) {
    with_float(to, [&](auto target) {
      using S = decltype(source);
      using T = decltype(target);
      const std::vector<S> x = as<S>(numbers(shape.numel()));
      std::vector<T> wanted;
      for (S v : x) wanted.push_back(static_cast<T>(static_cast<Accum<T>>(widen(v))));
      ctx.tape().reset();
      Tensor t = ctx.empty(shape, from);
      if (t.numel() > 0) ctx.upload(t, x.data());
      t = ctx.tape().watch(t);
      const Tensor y = cast(ctx, t, to, variant);
      ASSERT_EQ(y.dtype(), to);
      EXPECT_TRUE(same(read<T>(ctx, y), wanted)) << what;
      // The gradient is y's own values: cast back.
      ctx.tape().backward(y, y.detach());
      std::vector<S> back;
      for (T v : wanted) back.push_back(static_cast<S>(static_cast<Accum<S>>(widen(v))));
      EXPECT_TRUE(same(read<S>(ctx, ctx.tape().grad(t)), back)) << what;
    });
  });
}

TEST(Cast, EveryPairOfDtypesIsExactOnEveryInstructionSet) {
  for (int isa = 0; isa <= static_cast<int>(best_cpu_isa()); ++isa) {
    RankOptions o;
    o.threads = 2;
    o.cpu_isa = static_cast<CpuIsa>(isa);
    o.alloc_mode = AllocMode::raw;
    RankContext ctx(o);
    for (DType from : kFloats) {
      for (DType to : kFloats) {
        if (from == to) continue;
        for (const Shape& shape :
             {Shape{1, 1}, Shape{3, 17}, Shape{2, 5, 63}, Shape{0, 8}, Shape{1, 40001}}) {
          expect_exact(ctx, from, to, shape, "naive");
          if (from != DType::f64 && to != DType::f64) expect_exact(ctx, from, to, shape, "fused");
        }
      }
    }
    ctx.tape().reset();
  }
}

TEST(Cast, ADtypeItHasAlreadyCostsNothing) {
  RankContext ctx;
  const Tensor x = ctx.tape().watch(ctx.zeros({3, 4}, DType::bf16));
  const Tensor y = cast(ctx, x, DType::bf16);
  EXPECT_EQ(y.raw(), x.raw());
  EXPECT_EQ(ctx.tape().size(), 0);
}

TEST(Cast, RowsMayBeStridedAndGradientsAdd) {
  RankContext ctx;
  const std::vector<float> values = {1, 2, 3, -1, 4, 5, 6, -1};
  const Tensor wide = ctx.empty({2, 4}, DType::f32);
  ctx.upload(wide, values.data());
  for (const char* variant : {"naive", "fused"}) {
    ctx.tape().reset();
    const Tensor x = ctx.tape().watch(wide.narrow(-1, 0, 3));
    const Tensor a = cast(ctx, x, DType::bf16, variant), b = cast(ctx, x, DType::f16, variant);
    EXPECT_TRUE(same(read<bf16>(ctx, a), as<bf16>({1, 2, 3, 4, 5, 6})));
    ctx.tape().give_grad(a, a.detach());
    ctx.tape().backward(b, b.detach());
    EXPECT_TRUE(same(read<float>(ctx, ctx.tape().grad(x)), as<float>({2, 4, 6, 8, 10, 12}))) << variant;
  }
  ctx.tape().reset();
}

TEST(Cast, OutsideOfTheTapeNothingIsRecorded) {
  RankContext ctx;
  const Tensor x = ctx.tape().watch(ctx.zeros({3, 4}, DType::f32));
  const Tensor y = cast_values(ctx, x, DType::bf16, Tag::param);
  EXPECT_EQ(ctx.tape().size(), 0);
  EXPECT_FALSE(ctx.tape().needs_grad(y));
  EXPECT_GE(ctx.allocator().stats().live[Tag::param], 24u);
}

TEST(Cast, WhatIsNoNumberFormatIsRefused) {
  RankContext ctx;
  EXPECT_THROW((void)cast(ctx, ctx.zeros({2}, DType::f32), DType::i32), Error);
  EXPECT_THROW((void)cast(ctx, ctx.zeros({2}, DType::i32), DType::f32), Error);
  EXPECT_THROW((void)cast(ctx, Tensor(), DType::f32), Error);
}

TEST(CudaCast, EveryPairOfDtypesIsExact) {
  KILN_NEEDS_GPU();
  RankOptions o;
  o.device = Device::cuda();
  RankContext ctx(o);
  for (DType from : kFloats) {
    for (DType to : kFloats) {
      if (from == to) continue;
      expect_exact(ctx, from, to, {3, 1025}, "naive");
      if (from == DType::f64 || to == DType::f64) continue;
      for (const Shape& shape : {Shape{1, 8}, Shape{3, 1032}, Shape{2, 5, 24}, Shape{0, 8}, Shape{1, 40008}})
        expect_exact(ctx, from, to, shape, "fused");
    }
  }
  ctx.tape().reset();
}

// Rows that begin at whole pieces, and rows that do not and take the plain kernel.
TEST(CudaCast, RowsMayBeStridedAndGradientsAdd) {
  KILN_NEEDS_GPU();
  RankOptions o;
  o.device = Device::cuda();
  RankContext ctx(o);
  for (int64_t width : {24, 21}) {
    std::vector<float> values(static_cast<std::size_t>(5 * width)), once, doubled;
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 97);
    for (int64_t r = 0; r < 5; ++r) {
      for (int64_t c = 0; c < 16; ++c) once.push_back(values[static_cast<std::size_t>(r * width + c)]);
    }
    for (float v : once) doubled.push_back(2 * v);
    const Tensor wide = ctx.empty({5, width}, DType::f32);
    ctx.upload(wide, values.data());
    ctx.tape().reset();
    const Tensor x = ctx.tape().watch(wide.narrow(-1, 0, 16));
    // Rows of 21 do not begin at whole vectors: fused says so, and the table takes the row that can.
    const bool whole = width % 4 == 0;
    if (!whole) {
      EXPECT_THROW((void)cast(ctx, x, DType::bf16, "fused"), Error);
    }
    const char* const variant = whole ? "fused" : "";
    const Tensor a = cast(ctx, x, DType::bf16, variant), b = cast(ctx, x, DType::f16, variant);
    std::vector<bf16> narrow;
    for (float v : once) narrow.push_back(bf16(v));
    EXPECT_TRUE(same(read<bf16>(ctx, a), narrow)) << width;
    ctx.tape().give_grad(a, a.detach());
    ctx.tape().backward(b, b.detach());
    EXPECT_TRUE(same(read<float>(ctx, ctx.tape().grad(x)), doubled)) << width;
  }
  ctx.tape().reset();
}

}  // namespace
}  // namespace kiln
