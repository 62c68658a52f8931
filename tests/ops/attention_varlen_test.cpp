// Batches of sequences whose lengths vary, with the offsets on the device, on every CUDA variant that takes
// them: each sequence at most twice as far from fp64 as naive by itself in the same format; what stands
// around a sequence's rows is neither read nor written.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/rng.h"
#include "ops/attention/attention.h"
#include "ops/cases/run_case.h"
#include "ops/cpu_rows.h"
#include "support/gpu.h"

namespace kiln {
namespace {

using Doubles = std::vector<double>;

constexpr double kUntouched = 7;
constexpr int64_t kGuard = 3;  // rows in front of and behind each tensor, and of no sequence at its end

struct Batch {
  std::vector<std::pair<int, int>> lengths;  // queries and keys
  int64_t H, Hkv, D;
  bool causal = true;
  int64_t padding = 0;  // elements between rows

  std::vector<int32_t> offsets(bool keys) const {
    std::vector<int32_t> cu{0};
    for (const auto& [q, k] : lengths) cu.push_back(cu.back() + (keys ? k : q));
    return cu;
  }
  AttentionProblem problem(DType dtype) const {
    AttentionProblem p{static_cast<int64_t>(lengths.size()), 0, 0, H, Hkv, D, dtype, scale(), causal};
    for (const auto& [q, k] : lengths) p.Tq = std::max<int64_t>(p.Tq, q), p.Tk = std::max<int64_t>(p.Tk, k);
    p.varlen = true;
    p.all_queries = offsets(false).back() + kGuard;
    p.all_keys = offsets(true).back() + kGuard;
    const auto aligned = [&](int64_t width) {
      return (width + padding) * static_cast<int64_t>(size_of(dtype)) % 16 == 0;
    };
    p.tma = aligned(H * D) && aligned(Hkv * D);
    return p;
  }
  float scale() const { return static_cast<float>(1 / std::sqrt(static_cast<double>(D))); }
};

// Values of [rows, width] as rounded to the dtype.
struct Inputs {
  Doubles q, k, v, dout;
};

struct Results {
  Doubles o, lse, dq, dk, dv;  // without guards; lse [H, rows]
};

Doubles draw(const char* name, int64_t count, DType dtype) {
  Doubles values;
  with_float(dtype, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t i = 0; i < count; ++i) {
      const float z = philox_normal(philox_key(17, name), static_cast<uint64_t>(i));
      values.push_back(static_cast<double>(widen(static_cast<T>(static_cast<Accum<T>>(z)))));
    }
  });
  return values;
}

Inputs draw(const Batch& batch, DType dtype) {
  const int64_t queries = batch.offsets(false).back() * batch.H * batch.D,
                keys = batch.offsets(true).back() * batch.Hkv * batch.D;
  return {draw("q", queries, dtype), draw("k", keys, dtype), draw("v", keys, dtype),
          draw("dout", queries, dtype)};
}

// Rows among others that must not be read (NaN, of an input) or written.
class Guarded {
 public:
  Guarded(RankContext& ctx, int64_t width, int64_t rows, int64_t padding, DType dtype, const Doubles& values)
      : ctx_(&ctx), width_(width), rows_(rows), pitch_(width + padding), input_(!values.empty()) {
    whole_ = ctx.empty({1, rows + 3 * kGuard, pitch_}, dtype);
    std::vector<std::byte> bytes(whole_.bytes().value);
    with_float(dtype, [&](auto zero) {
      using T = decltype(zero);
      T* host = reinterpret_cast<T*>(bytes.data());
      const double around = input_ ? NAN : kUntouched;
      for (int64_t i = 0; i < whole_.numel(); ++i) host[i] = static_cast<T>(static_cast<Accum<T>>(around));
      for (std::size_t i = 0; i < values.size(); ++i)
        host[place(static_cast<int64_t>(i))] = static_cast<T>(static_cast<Accum<T>>(values[i]));
    });
    ctx.upload(whole_, bytes.data());
  }
  // With the rows of no sequence behind the others.
  Tensor tensor() const { return whole_.narrow(1, kGuard, rows_ + kGuard).narrow(2, 0, width_); }

  Doubles take(const char* name) const {
    std::vector<std::byte> bytes(whole_.bytes().value);
    ctx_->download(bytes.data(), whole_);
    Doubles all, values;
    with_float(whole_.dtype(), [&](auto zero) {
      using T = decltype(zero);
      for (int64_t i = 0; i < whole_.numel(); ++i)
        all.push_back(static_cast<double>(widen(reinterpret_cast<const T*>(bytes.data())[i])));
    });
    for (int64_t i = 0; i < rows_ * width_; ++i) {
      values.push_back(all[place(i)]);
      all[place(i)] = kUntouched;
    }
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i] == kUntouched) continue;
      ADD_FAILURE() << name << " was written at " << i << ", outside its sequences";
      break;
    }
    return values;
  }

 private:
  std::size_t place(int64_t i) const {
    return static_cast<std::size_t>((kGuard + i / width_) * pitch_ + i % width_);
  }
  RankContext* ctx_;
  Tensor whole_;
  int64_t width_, rows_, pitch_;
  bool input_;
};

Tensor offsets_on(RankContext& ctx, const std::vector<int32_t>& cu) {
  const Tensor t = ctx.empty({static_cast<int64_t>(cu.size())}, DType::i32);
  ctx.upload(t, cu.data());
  return t;
}

Tensor scratch(RankContext& ctx, std::size_t bytes) {  // full of what is no number
  if (bytes == 0) return {};
  const Tensor t = ctx.empty({static_cast<int64_t>(bytes)}, DType::u8);
  const std::vector<uint8_t> junk(bytes, 0xff);
  ctx.upload(t, junk.data());
  return t;
}

RankOptions on_cuda(const std::string& variant = {}) {
  RankOptions o;
  o.device = Device::cuda();
  if (!variant.empty()) o.variants.set("attention", variant);
  return o;
}

Results run(const Variant<AttentionOp>& row, const Batch& batch, const Inputs& in, DType dtype) {
  RankContext ctx(on_cuda());
  const AttentionProblem p = batch.problem(dtype);
  const int64_t queries = p.all_queries - kGuard, keys = p.all_keys - kGuard;
  const auto of_queries = [&](const Doubles& values) {
    return Guarded(ctx, p.H * p.D, queries, batch.padding, dtype, values);
  };
  const auto of_keys = [&](const Doubles& values) {
    return Guarded(ctx, p.Hkv * p.D, keys, batch.padding, dtype, values);
  };
  const Guarded q = of_queries(in.q), k = of_keys(in.k), v = of_keys(in.v), dout = of_queries(in.dout),
                o = of_queries({}), dq = of_queries({}), dk = of_keys({}), dv = of_keys({});
  const Tensor cu_q = offsets_on(ctx, batch.offsets(false)), cu_k = offsets_on(ctx, batch.offsets(true));
  const Sequences sequences{cu_q.data<int32_t>(), cu_k.data<int32_t>()};
  const Tensor lse = ctx.empty({1, p.H, p.all_queries}, DType::f32), none;
  const std::vector<float> untouched(static_cast<std::size_t>(lse.numel()), static_cast<float>(kUntouched));
  ctx.upload(lse, untouched.data());
  const auto bytes = [&](Pass pass) { return row.workspace == nullptr ? 0 : row.workspace(p, pass); };
  const Tensor forward = scratch(ctx, bytes(Pass::forward)), backward = scratch(ctx, bytes(Pass::backward));
  row.forward(ctx, {p, q.tensor(), k.tensor(), v.tensor(), o.tensor(), none, lse, forward, sequences});
  row.backward(ctx,
               {p, dout.tensor(), q.tensor(), k.tensor(), v.tensor(), none, o.tensor(), lse,
                GradSlot{dq.tensor()}, GradSlot{dk.tensor()}, GradSlot{dv.tensor()}, backward, sequences});
  Results r{o.take("o"), {}, dq.take("dq"), dk.take("dk"), dv.take("dv")};
  std::vector<float> all(untouched.size());
  ctx.download(all.data(), lse);
  for (int64_t i = 0; i < lse.numel(); ++i) {
    const double value = static_cast<double>(all[static_cast<std::size_t>(i)]);
    if (i % p.all_queries < queries) {
      r.lse.push_back(value);
    } else {
      EXPECT_EQ(value, kUntouched) << "lse of a row of no sequence was written";
    }
  }
  return r;
}

// Rows first .. end - 1.
Doubles rows_of(const Doubles& all, int64_t width, int64_t first, int64_t end) {
  return {all.begin() + first * width, all.begin() + end * width};
}

// What query i of a sequence sums up to, in fp64.
double lse_of(const Batch& b, const Doubles& q, const Doubles& k, int64_t Tq, int64_t Tk, int64_t h,
              int64_t i) {
  const int64_t hkv = h / (b.H / b.Hkv);
  const int64_t seen = b.causal ? std::clamp<int64_t>(i + 1 + Tk - Tq, 0, Tk) : Tk;
  double sum = 0;
  for (int64_t j = 0; j < seen; ++j) {
    double score = 0;
    for (int64_t c = 0; c < b.D; ++c) score += q[(i * b.H + h) * b.D + c] * k[(j * b.Hkv + hkv) * b.D + c];
    sum += std::exp(score * static_cast<double>(b.scale()));
  }
  return std::log(sum);
}

OpCase case_of(const Batch& b, int64_t Tq, int64_t Tk) {
  using K = CaseInput::Kind;
  return {"attention",
          cat(Tq, "x", Tk),
          {{"q", K::activation, {1, Tq, b.H * b.D}},
           {"k", K::activation, {1, Tk, b.Hkv * b.D}},
           {"v", K::activation, {1, Tk, b.Hkv * b.D}}},
          [&b](RankContext& ctx, std::span<const CaseArgument> in) {
            AttentionOptions o;
            o.heads = b.H;
            o.kv_heads = b.Hkv;
            o.causal = b.causal;
            return attention(ctx, in[0].tensor, in[1].tensor, in[2].tensor, o);
          }};
}

void expect_zero(const Doubles& x, const char* name) {
  for (const double v : x) ASSERT_EQ(v, 0) << name;
}

void expect_sequence(RankContext& naive, const Batch& batch, const Inputs& in, const Results& got,
                     std::size_t n, DType dtype, double ulp) {
  const auto cu_q = batch.offsets(false), cu_k = batch.offsets(true);
  const int64_t Tq = batch.lengths[n].first, Tk = batch.lengths[n].second;
  const int64_t wq = batch.H * batch.D, wk = batch.Hkv * batch.D;
  const auto queries = [&](const Doubles& x) { return rows_of(x, wq, cu_q[n], cu_q[n + 1]); };
  const auto keys = [&](const Doubles& x) { return rows_of(x, wk, cu_k[n], cu_k[n + 1]); };
  SCOPED_TRACE(cat("sequence ", n, ", ", Tq, " queries ", Tk, " keys"));
  const int64_t rows = cu_q.back(), step = Tq > 400 ? 41 : 1;
  const Doubles its_q = queries(in.q), its_k = keys(in.k);
  for (int64_t h = 0; h < batch.H; ++h) {
    for (int64_t i = 0; i < Tq; i += step) {
      const double wanted = lse_of(batch, its_q, its_k, Tq, Tk, h, i),
                   value = got.lse[static_cast<std::size_t>(h * rows + cu_q[n] + i)];
      if (std::isinf(wanted)) {
        ASSERT_EQ(value, wanted) << "lse of query " << i;
      } else {
        ASSERT_NEAR(value, wanted, ulp >= 0x1p-11 ? 4e-3 : 2e-5) << "lse of query " << i;
      }
    }
  }
  if (Tq == 0 || Tk == 0) {
    expect_zero(queries(got.o), "o");
    expect_zero(queries(got.dq), "dq");
    expect_zero(keys(got.dk), "dk");
    expect_zero(keys(got.dv), "dv");
    return;
  }
  const OpCase c = case_of(batch, Tq, Tk);
  const CaseData data{{queries(in.q), keys(in.k), keys(in.v)}, queries(in.dout)};
  const CaseResult exact = run_case(naive, c, data, DType::f64), low = run_case(naive, c, data, dtype);
  // The scores' gradient is a difference of sums of D products in two orders. With a key or two it is nothing
  // else, for each query; with few it is small.
  const auto D = static_cast<double>(batch.D), queries_here = static_cast<double>(Tq);
  const double floor = ulp / 2 * (Tk < 3 ? 2 * D * std::sqrt(queries_here) : Tk < 16 ? std::sqrt(D) : 1);
  const auto near = [&](const Doubles& x, const Doubles& rounded, const Doubles& wanted, double least,
                        const char* name) {
    EXPECT_LE(relative_error(x, wanted), 2 * relative_error(rounded, wanted) + least) << name;
  };
  near(queries(got.o), low.y, exact.y, ulp, "o");
  near(queries(got.dq), low.grads[0], exact.grads[0], floor, "dq");
  near(keys(got.dk), low.grads[1], exact.grads[1], floor, "dk");
  near(keys(got.dv), low.grads[2], exact.grads[2], ulp, "dv");
}

// f(row, dtype, distance of neighbouring numbers near 1) for each variant and format that takes the batch.
template <class F>
void for_variants(const Batch& batch, F f) {
  RankContext ctx(on_cuda());
  int count = 0;
  for (const auto& [dtype, ulp] :
       std::map<DType, double>{{DType::f32, 0x1p-23}, {DType::bf16, 0x1p-7}, {DType::f16, 0x1p-10}}) {
    const AttentionProblem p = batch.problem(dtype);
    for (const auto& row : AttentionOp::rows()) {
      if (row.device != DeviceType::cuda || row.forward == nullptr || row.unsupported == nullptr) continue;
      if (!row.unsupported(p, ctx.traits()).empty()) continue;
      SCOPED_TRACE(cat(row.name, " ", name_of(dtype), " width ", batch.D, batch.causal ? "" : " full"));
      f(row, dtype, std::string_view(row.name).ends_with("_tf32") ? 0x1p-9 : ulp);
      ++count;
    }
  }
  EXPECT_GT(count, 0) << "no variant takes offsets on the device";
}

bool is_atomic(const Variant<AttentionOp>& row) {
  return std::string_view(row.name).find("atomic") != std::string_view::npos;
}

void expect_right(const Batch& batch) {
  RankContext naive(on_cuda("naive"));
  for_variants(batch, [&](const Variant<AttentionOp>& row, DType dtype, double ulp) {
    const Inputs in = draw(batch, dtype);
    const Results got = run(row, batch, in, dtype);
    for (std::size_t n = 0; n < batch.lengths.size(); ++n)
      expect_sequence(naive, batch, in, got, n, dtype, ulp);
    if (is_atomic(row)) return;
    const Results again = run(row, batch, in, dtype);
    EXPECT_EQ(got.o, again.o);
    EXPECT_EQ(got.lse, again.lse);
    EXPECT_EQ(got.dq, again.dq);
    EXPECT_EQ(got.dk, again.dk);
    EXPECT_EQ(got.dv, again.dv);
  });
}

const std::vector<std::pair<int, int>> kRagged = {{0, 0},     {1, 1},     {64, 64},  {65, 65},
                                                  {0, 37},    {131, 131}, {70, 197}, {29, 0},
                                                  {300, 300}, {197, 70},  {2, 1},    {127, 129}};

class CudaAttentionVarlen : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { KILN_NEEDS_GPU(); }
};

TEST_P(CudaAttentionVarlen, EachSequenceIsByItself) {
  expect_right({kRagged, 2, 1, GetParam(), true, 8});
  expect_right({kRagged, 2, 2, GetParam(), false});
}

TEST_P(CudaAttentionVarlen, RowsThatAreNotAligned) {
  expect_right({{{65, 67}, {3, 5}, {0, 4}, {66, 31}}, 3, 1, GetParam(), true, 3});
}

INSTANTIATE_TEST_SUITE_P(All, CudaAttentionVarlen, testing::Values(16, 64, 72, 80, 128, 192, 256, 7));

class CudaAttentionVarlenOf : public testing::Test {
 protected:
  void SetUp() override { KILN_NEEDS_GPU(); }
};

// So many that variants take the larger of their blocks, and tickets run over many heads.
TEST_F(CudaAttentionVarlenOf, ManySequences) {
  std::vector<std::pair<int, int>> lengths;
  for (int n = 0; n < 40; ++n) lengths.emplace_back(n * 37 % 151, n * 53 % 149);
  expect_right({lengths, 4, 2, 64});
  expect_right({lengths, 2, 2, 128, false});
}

TEST_F(CudaAttentionVarlenOf, OneLongAmongShortOnes) {
  for (const bool causal : {true, false}) {
    expect_right({{{5, 5}, {2311, 2311}, {1, 700}, {700, 1}}, 2, 1, 64, causal});
    expect_right({{{5, 5}, {1100, 1301}, {1, 700}, {700, 1}}, 2, 1, 128, causal});
  }
}

TEST_F(CudaAttentionVarlenOf, NoSequenceAtAll) {
  expect_right({{}, 2, 1, 64});
  expect_right({{{0, 0}, {0, 0}}, 2, 1, 64});
}

TEST_F(CudaAttentionVarlenOf, WhatIsNotANumberStaysInItsSequence) {
  const Batch batch{{{67, 67}, {131, 70}, {65, 129}, {64, 64}, {3, 200}}, 2, 1, 64};
  for_variants(batch, [&](const Variant<AttentionOp>& row, DType dtype, double ulp) {
    const Inputs clean = draw(batch, dtype);
    const Results wanted = run(row, batch, clean, dtype);
    for (const double poison : {static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
      for (const std::size_t bad : {std::size_t{1}, std::size_t{2}}) {
        Inputs in = clean;
        const auto cu_q = batch.offsets(false), cu_k = batch.offsets(true);
        const auto spoil = [&](Doubles& x, int64_t width, const std::vector<int32_t>& cu) {
          std::fill(x.begin() + cu[bad] * width, x.begin() + cu[bad + 1] * width, poison);
        };
        spoil(in.q, 128, cu_q), spoil(in.dout, 128, cu_q), spoil(in.k, 64, cu_k), spoil(in.v, 64, cu_k);
        const Results got = run(row, batch, in, dtype);
        const auto same_outside = [&](const Doubles& x, const Doubles& y, int64_t width,
                                      const std::vector<int32_t>& cu, const char* name) {
          for (std::size_t n = 0; n < batch.lengths.size(); ++n) {
            if (n == bad) continue;
            EXPECT_LE(
                relative_error(rows_of(x, width, cu[n], cu[n + 1]), rows_of(y, width, cu[n], cu[n + 1])),
                2 * ulp)
                << name << " of sequence " << n << " beside " << bad;
          }
        };
        same_outside(got.o, wanted.o, 128, cu_q, "o");
        same_outside(got.dq, wanted.dq, 128, cu_q, "dq");
        same_outside(got.dk, wanted.dk, 64, cu_k, "dk");
        same_outside(got.dv, wanted.dv, 64, cu_k, "dv");
      }
    }
  });
}

}  // namespace
}  // namespace kiln
