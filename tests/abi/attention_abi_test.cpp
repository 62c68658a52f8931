// What the C interface computes, against plain loops in fp64: layouts, grouped heads, lengths that vary,
// unwanted gradients. On the CPU, and on a GPU where there is one. What it refuses is in
// bad_calls_test.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "abi/placed_tensor.h"
#include "support/gpu.h"

namespace kiln {
namespace {

using Doubles = std::vector<double>;

struct Sizes {
  int64_t B, Tq, Tk, H, Hkv, D;
  bool causal;
  double scale;
};

struct Reference {
  Doubles o, lse, dq, dk, dv;
};

// All tensors dense, [B, T, heads, D]; lse [B, H, Tq].
Reference reference(const Sizes& s, const Doubles& q, const Doubles& k, const Doubles& v,
                    const Doubles& dout) {
  Reference r{Doubles(q.size()), Doubles(static_cast<std::size_t>(s.B * s.H * s.Tq)), Doubles(q.size()),
              Doubles(k.size()), Doubles(k.size())};
  const auto at = [&](int64_t b, int64_t t, int64_t T, int64_t h, int64_t heads) {
    return static_cast<std::size_t>(((b * T + t) * heads + h) * s.D);
  };
  const auto D = static_cast<std::size_t>(s.D);
  for (int64_t bhi = 0; bhi < s.B * s.H * s.Tq; ++bhi) {
    const int64_t i = bhi % s.Tq, h = bhi / s.Tq % s.H, b = bhi / s.Tq / s.H, hkv = h / (s.H / s.Hkv);
    const int64_t seen = s.causal ? std::max<int64_t>(0, i + 1 + s.Tk - s.Tq) : s.Tk;
    const std::size_t qi = at(b, i, s.Tq, h, s.H);
    Doubles p(static_cast<std::size_t>(seen)), dp(p);
    double sum = 0, inner = 0;
    for (int64_t j = 0; j < seen; ++j) {
      double score = 0;
      for (std::size_t c = 0; c < D; ++c) score += q[qi + c] * k[at(b, j, s.Tk, hkv, s.Hkv) + c];
      sum += p[static_cast<std::size_t>(j)] =
          std::exp(s.scale * score);  // small scores: no maximum is needed
    }
    r.lse[static_cast<std::size_t>(bhi)] = std::log(sum);
    for (int64_t j = 0; j < seen; ++j) {
      const auto n = static_cast<std::size_t>(j), kj = at(b, j, s.Tk, hkv, s.Hkv);
      p[n] /= sum;
      for (std::size_t c = 0; c < D; ++c) {
        r.o[qi + c] += p[n] * v[kj + c];
        dp[n] += dout[qi + c] * v[kj + c];
        r.dv[kj + c] += p[n] * dout[qi + c];
      }
      inner += p[n] * dp[n];
    }
    for (int64_t j = 0; j < seen; ++j) {
      const auto n = static_cast<std::size_t>(j), kj = at(b, j, s.Tk, hkv, s.Hkv);
      const double ds = s.scale * p[n] * (dp[n] - inner);
      for (std::size_t c = 0; c < D; ++c) {
        r.dq[qi + c] += ds * k[kj + c];
        r.dk[kj + c] += ds * q[qi + c];
      }
    }
  }
  return r;
}

void expect_near(const Doubles& got, const Doubles& wanted, double tolerance, const char* name) {
  ASSERT_EQ(got.size(), wanted.size()) << name;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::isinf(wanted[i]) && got[i] == wanted[i]) continue;
    ASSERT_NEAR(got[i], wanted[i], tolerance) << name << " at " << i;
  }
}

struct Place {
  int device;
  DType dtype;
  double tolerance;
};

class AttentionAbi : public testing::TestWithParam<Place> {
 protected:
  void SetUp() override {
    if (GetParam().device != KILN_CPU) KILN_NEEDS_GPU();
    RankOptions options;
    options.device = GetParam().device == KILN_CPU ? Device::cpu() : Device::cuda(GetParam().device);
    memory = std::make_unique<RankContext>(options);
    owner = std::make_unique<ContextOwner>(GetParam().device);
    ASSERT_NE(owner->context, nullptr);
    const kiln_attention_problem p = problem_of({1, 8, 8, 1, 1, 64, true, 0.125});
    const char* variant = nullptr;
    const kiln_status status = kiln_attention_variant(owner->context, &p, &variant);
    if (status == KILN_NOT_AVAILABLE) GTEST_SKIP() << kiln_last_error();
    ASSERT_EQ(status, KILN_OK);
  }

  kiln_attention_problem problem_of(const Sizes& s) const {
    kiln_attention_problem p{};
    p.struct_size = sizeof p;
    p.dtype = dtype() == DType::f32 ? KILN_FP32 : KILN_BF16;
    p.batch = s.B, p.queries = s.Tq, p.keys = s.Tk;
    p.heads = s.H, p.kv_heads = s.Hkv, p.head_dim = s.D;
    p.causal = s.causal ? 1 : 0;
    p.scale = static_cast<float>(s.scale);
    return p;
  }
  PlacedTensor placed(int64_t batch, int64_t rows, int64_t heads, int64_t D, MemoryLayout layout,
                      const char* name = nullptr) {
    return {*memory, dtype(), batch, rows, heads, D, layout, name};
  }
  Scratch scratch(std::size_t bytes) { return {*memory, bytes}; }
  void wait() { memory->synchronize(); }

  void check(const Sizes& s, MemoryLayout layout) {
    const PlacedTensor q = placed(s.B, s.Tq, s.H, s.D, layout, "q"),
                       k = placed(s.B, s.Tk, s.Hkv, s.D, layout, "k"),
                       v = placed(s.B, s.Tk, s.Hkv, s.D, layout, "v"),
                       dout = placed(s.B, s.Tq, s.H, s.D, layout, "dout"),
                       o = placed(s.B, s.Tq, s.H, s.D, layout), dq = placed(s.B, s.Tq, s.H, s.D, layout),
                       dk = placed(s.B, s.Tk, s.Hkv, s.D, layout), dv = placed(s.B, s.Tk, s.Hkv, s.D, layout);
    const Tensor lse = memory->empty({s.B * s.H * s.Tq}, DType::f32);
    const kiln_attention_problem p = problem_of(s);
    std::size_t forward = 0, backward = 0;
    ASSERT_EQ(kiln_attention_workspace(owner->context, &p, &forward, &backward), KILN_OK)
        << kiln_last_error();
    const Scratch a = scratch(forward), b = scratch(backward);
    wait();
    void* stream = memory->compute().handle;
    ASSERT_EQ(kiln_attention_forward(owner->context, &p, &q.view, &k.view, &v.view, &o.view,
                                     lse.data<float>(), a.raw(), forward, stream),
              KILN_OK)
        << kiln_last_error();
    ASSERT_EQ(
        kiln_attention_backward(owner->context, &p, &q.view, &k.view, &v.view, &o.view, lse.data<float>(),
                                &dout.view, &dq.view, &dk.view, &dv.view, b.raw(), backward, stream),
        KILN_OK)
        << kiln_last_error();
    const Reference r = reference(s, q.values(), k.values(), v.values(), dout.values());
    expect_near(o.values(), r.o, tolerance(), "o");
    expect_near(floats(lse), r.lse, tolerance(), "lse");
    expect_near(dq.values(), r.dq, 2 * tolerance(), "dq");
    expect_near(dk.values(), r.dk, 2 * tolerance(), "dk");
    expect_near(dv.values(), r.dv, 2 * tolerance(), "dv");
    o.expect_gaps_untouched("o");
    dq.expect_gaps_untouched("dq");
    dk.expect_gaps_untouched("dk");
    dv.expect_gaps_untouched("dv");
  }

  Doubles floats(const Tensor& t) {
    std::vector<float> values(static_cast<std::size_t>(t.numel()));
    download_floats(*memory, t, values);
    return {values.begin(), values.end()};
  }
  DType dtype() const { return GetParam().dtype; }
  double tolerance() const { return GetParam().tolerance; }

  std::unique_ptr<RankContext> memory;
  std::unique_ptr<ContextOwner> owner;
};

TEST_P(AttentionAbi, EveryLayout) {
  for (const MemoryLayout layout : {MemoryLayout::dense, MemoryLayout::padded, MemoryLayout::rows_outside})
    check({2, 70, 70, 4, 4, 32, true, 0.2}, layout);
}

TEST_P(AttentionAbi, GroupedHeadsAndMoreKeysThanQueries) {
  check({3, 33, 97, 6, 2, 16, true, 0.25}, MemoryLayout::padded);
  check({1, 1, 65, 4, 1, 64, false, 0.125}, MemoryLayout::dense);
}

TEST_P(AttentionAbi, QueriesThatSeeNothing) { check({2, 9, 4, 2, 1, 24, true, 0.3}, MemoryLayout::padded); }

// A width or dtype that has no kernel on this device is refused, with a reason; never computed wrongly.
TEST_P(AttentionAbi, EveryWidthIsRightOrRefused) {
  for (const int64_t D : {1, 7, 96, 128, 136, 192, 256}) {
    const Sizes s{2, 19, 35, 2, 1, D, true, 0.1};
    const kiln_attention_problem p = problem_of(s);
    const char* variant = nullptr;
    const kiln_status status = kiln_attention_variant(owner->context, &p, &variant);
    if (status == KILN_OK) {
      check(s, MemoryLayout::dense);
      continue;
    }
    EXPECT_EQ(status, KILN_NOT_AVAILABLE) << D;
    EXPECT_NE(std::string_view(kiln_last_error()).find(std::to_string(D)), std::string_view::npos)
        << kiln_last_error();
    EXPECT_NE(GetParam().device, KILN_CPU) << D;
  }
}

TEST_P(AttentionAbi, ScaleZeroMeansTheUsualOne) {
  const Sizes s{1, 5, 5, 1, 1, 16, false, 0};
  const PlacedTensor q = placed(1, 5, 1, 16, MemoryLayout::dense, "q"),
                     k = placed(1, 5, 1, 16, MemoryLayout::dense, "k"),
                     v = placed(1, 5, 1, 16, MemoryLayout::dense, "v"),
                     o = placed(1, 5, 1, 16, MemoryLayout::dense);
  const kiln_attention_problem p = problem_of(s);
  std::size_t bytes = 0;
  ASSERT_EQ(kiln_attention_workspace(owner->context, &p, &bytes, nullptr), KILN_OK);
  const Tensor lse = memory->empty({5}, DType::f32);
  const Scratch work = scratch(bytes);
  wait();
  ASSERT_EQ(kiln_attention_forward(owner->context, &p, &q.view, &k.view, &v.view, &o.view, lse.data<float>(),
                                   work.raw(), bytes, memory->compute().handle),
            KILN_OK);
  Sizes usual = s;
  usual.scale = 0.25;
  expect_near(o.values(), reference(usual, q.values(), k.values(), v.values(), q.values()).o, tolerance(),
              "o");
}

TEST_P(AttentionAbi, OnlyTheGradientsAskedFor) {
  const Sizes s{1, 20, 20, 2, 2, 16, true, 0.25};
  const auto make = [&](const char* name) { return placed(1, 20, 2, 16, MemoryLayout::dense, name); };
  const PlacedTensor q = make("q"), k = make("k"), v = make("v"), dout = make("dout"), o = make(nullptr);
  const kiln_attention_problem p = problem_of(s);
  std::size_t forward = 0, backward = 0;
  ASSERT_EQ(kiln_attention_workspace(owner->context, &p, &forward, &backward), KILN_OK);
  const Tensor lse = memory->empty({40}, DType::f32);
  const Scratch work = scratch(std::max(forward, backward));
  wait();
  void* stream = memory->compute().handle;
  ASSERT_EQ(kiln_attention_forward(owner->context, &p, &q.view, &k.view, &v.view, &o.view, lse.data<float>(),
                                   work.raw(), forward, stream),
            KILN_OK);
  const Reference r = reference(s, q.values(), k.values(), v.values(), dout.values());
  for (int wanted = 0; wanted < 8; ++wanted) {
    const PlacedTensor dq = make(nullptr), dk = make(nullptr), dv = make(nullptr);
    wait();
    ASSERT_EQ(
        kiln_attention_backward(owner->context, &p, &q.view, &k.view, &v.view, &o.view, lse.data<float>(),
                                &dout.view, wanted & 1 ? &dq.view : nullptr, wanted & 2 ? &dk.view : nullptr,
                                wanted & 4 ? &dv.view : nullptr, work.raw(), backward, stream),
        KILN_OK)
        << kiln_last_error();
    const Doubles none(q.values().size(), static_cast<double>(kUntouched));
    expect_near(dq.values(), wanted & 1 ? r.dq : none, tolerance(), "dq");
    expect_near(dk.values(), wanted & 2 ? r.dk : none, tolerance(), "dk");
    expect_near(dv.values(), wanted & 4 ? r.dv : none, tolerance(), "dv");
  }
}

TEST_P(AttentionAbi, SeveralThreadsShareAContext) {
  constexpr std::size_t kThreads = 4;
  const Sizes s{2, 65, 65, 2, 2, 32, true, 0.2};
  const PlacedTensor q = placed(2, 65, 2, 32, MemoryLayout::dense, "q"),
                     k = placed(2, 65, 2, 32, MemoryLayout::dense, "k"),
                     v = placed(2, 65, 2, 32, MemoryLayout::dense, "v");
  const kiln_attention_problem p = problem_of(s);
  std::size_t bytes = 0;
  ASSERT_EQ(kiln_attention_workspace(owner->context, &p, &bytes, nullptr), KILN_OK);
  std::vector<PlacedTensor> outputs;
  std::vector<Tensor> sums;
  std::vector<Scratch> work;
  for (std::size_t n = 0; n < kThreads; ++n) {
    outputs.push_back(placed(2, 65, 2, 32, MemoryLayout::dense));
    sums.push_back(memory->empty({2 * 2 * 65}, DType::f32));
    work.push_back(scratch(bytes));
  }
  wait();
  std::vector<std::thread> threads;
  for (std::size_t n = 0; n < kThreads; ++n) {
    threads.emplace_back([&, n] {
      for (int again = 0; again < 20; ++again) {
        EXPECT_EQ(
            kiln_attention_forward(owner->context, &p, &q.view, &k.view, &v.view, &outputs[n].view,
                                   sums[n].data<float>(), work[n].raw(), bytes, memory->compute().handle),
            KILN_OK)
            << kiln_last_error();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  const Doubles wanted = reference(s, q.values(), k.values(), v.values(), q.values()).o;
  for (const PlacedTensor& o : outputs) expect_near(o.values(), wanted, tolerance(), "o");
}

TEST_P(AttentionAbi, NothingToDo) {
  kiln_attention_problem p = problem_of({0, 8, 8, 2, 2, 16, true, 0.25});
  const kiln_attention_view none{};
  EXPECT_EQ(
      kiln_attention_forward(owner->context, &p, &none, &none, &none, &none, nullptr, nullptr, 0, nullptr),
      KILN_OK)
      << kiln_last_error();
  p.batch = 1, p.queries = 0;
  const PlacedTensor k = placed(1, 8, 2, 16, MemoryLayout::dense, "k");
  EXPECT_EQ(kiln_attention_forward(owner->context, &p, &none, &k.view, &k.view, &none, nullptr, nullptr, 0,
                                   nullptr),
            KILN_OK)
      << kiln_last_error();
}

// Sequences of 5, 0, 33, 1 and 70 queries with 5, 7, 40, 1 and 0 keys, one after the other, and two rows
// that belong to none: with the offsets in host memory, sequence after sequence, or on the device, all at
// once.
class VaryingLengths : public AttentionAbi {
 protected:
  void check_varying(bool on_device);
};

void VaryingLengths::check_varying(bool on_device) {
  const std::vector<int32_t> cu_q{0, 5, 5, 38, 39, 109}, cu_k{0, 5, 12, 52, 53, 53};
  const int64_t spare = on_device && GetParam().device != KILN_CPU ? 2 : 0;
  const int64_t H = 4, Hkv = 2, D = 16, queries = cu_q.back() + spare, keys = cu_k.back() + spare;
  kiln_attention_problem p = problem_of({5, 70, 40, H, Hkv, D, true, 0.25});
  const Tensor device_q = memory->empty({6}, DType::i32), device_k = memory->empty({6}, DType::i32);
  memory->upload(device_q, cu_q.data());
  memory->upload(device_k, cu_k.data());
  if (on_device) {
    p.cu_queries = device_q.data<int32_t>();
    p.cu_keys = device_k.data<int32_t>();
    p.query_rows = queries;
    p.key_rows = keys;
  } else {
    p.host_cu_queries = cu_q.data();
    p.host_cu_keys = cu_k.data();
  }
  const auto make = [&](int64_t rows, int64_t heads, const char* name) {
    return placed(1, rows, heads, D, MemoryLayout::padded, name);
  };
  const PlacedTensor q = make(queries, H, "q"), k = make(keys, Hkv, "k"), v = make(keys, Hkv, "v"),
                     dout = make(queries, H, "dout"), o = make(queries, H, nullptr),
                     dq = make(queries, H, nullptr), dk = make(keys, Hkv, nullptr),
                     dv = make(keys, Hkv, nullptr);
  std::size_t forward = 0, backward = 0;
  ASSERT_EQ(kiln_attention_workspace(owner->context, &p, &forward, &backward), KILN_OK) << kiln_last_error();
  const Tensor lse = memory->empty({H * queries}, DType::f32);
  const Scratch a = scratch(forward), b = scratch(backward);
  wait();
  void* stream = memory->compute().handle;
  ASSERT_EQ(kiln_attention_forward(owner->context, &p, &q.view, &k.view, &v.view, &o.view, lse.data<float>(),
                                   a.raw(), forward, stream),
            KILN_OK)
      << kiln_last_error();
  ASSERT_EQ(kiln_attention_backward(owner->context, &p, &q.view, &k.view, &v.view, &o.view, lse.data<float>(),
                                    &dout.view, &dq.view, &dk.view, &dv.view, b.raw(), backward, stream),
            KILN_OK)
      << kiln_last_error();

  const Doubles all_lse = floats(lse);
  for (std::size_t n = 0; n < 5; ++n) {
    const auto part = [&](const PlacedTensor& t, const std::vector<int32_t>& cu, int64_t heads) {
      const Doubles all = t.values();
      return Doubles(all.begin() + cu[n] * heads * D, all.begin() + cu[n + 1] * heads * D);
    };
    const Sizes s{1, cu_q[n + 1] - cu_q[n], cu_k[n + 1] - cu_k[n], H, Hkv, D, true, 0.25};
    const Reference r =
        reference(s, part(q, cu_q, H), part(k, cu_k, Hkv), part(v, cu_k, Hkv), part(dout, cu_q, H));
    expect_near(part(o, cu_q, H), r.o, tolerance(), "o");
    expect_near(part(dq, cu_q, H), r.dq, 2 * tolerance(), "dq");
    expect_near(part(dk, cu_k, Hkv), r.dk, 2 * tolerance(), "dk");
    expect_near(part(dv, cu_k, Hkv), r.dv, 2 * tolerance(), "dv");
    Doubles sums;
    for (int64_t h = 0; h < H; ++h) {
      for (int64_t i = cu_q[n]; i < cu_q[n + 1]; ++i)
        sums.push_back(all_lse[static_cast<std::size_t>(h * queries + i)]);
    }
    expect_near(sums, r.lse, tolerance(), "lse");
  }
  for (const PlacedTensor* t : {&o, &dq, &dk, &dv}) {
    const Doubles all = t->values();
    const int64_t width = t == &o || t == &dq ? H * D : Hkv * D;
    for (std::size_t i = all.size() - static_cast<std::size_t>(spare * width); i < all.size(); ++i)
      ASSERT_EQ(all[i], static_cast<double>(kUntouched)) << "a row of no sequence was written";
    t->expect_gaps_untouched("a result");
  }
}

TEST_P(VaryingLengths, OffsetsOnTheHost) { check_varying(false); }
TEST_P(VaryingLengths, OffsetsOnTheDevice) { check_varying(true); }

const Place kOnCpu[] = {{KILN_CPU, DType::f32, 2e-5}, {KILN_CPU, DType::bf16, 4e-2}};
const Place kOnCuda[] = {{0, DType::bf16, 4e-2}, {0, DType::f32, 1e-4}};

INSTANTIATE_TEST_SUITE_P(Cpu, AttentionAbi, testing::ValuesIn(kOnCpu));
INSTANTIATE_TEST_SUITE_P(Cuda, AttentionAbi, testing::ValuesIn(kOnCuda));
INSTANTIATE_TEST_SUITE_P(Cpu, VaryingLengths, testing::ValuesIn(kOnCpu));
INSTANTIATE_TEST_SUITE_P(Cuda, VaryingLengths, testing::ValuesIn(kOnCuda));

}  // namespace
}  // namespace kiln
