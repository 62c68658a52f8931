// Calls of the C interface that must be refused: the status, and a message that names the value seen.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <thread>

#include "abi/attention_plan.h"
#include "abi/placed_tensor.h"
#include "device/gpu_info.h"

namespace kiln {
namespace {

constexpr int64_t kB = 2, kT = 6, kH = 2, kD = 16;

// One good call on the CPU, of which each test spoils something.
class BadCalls : public testing::Test {
 protected:
  BadCalls() : lse(memory.empty({kB * kH * kT}, DType::f32)) {
    p.struct_size = sizeof p;
    p.dtype = KILN_FP32;
    p.batch = kB, p.queries = p.keys = kT, p.heads = p.kv_heads = kH, p.head_dim = kD;
    EXPECT_EQ(kiln_attention_workspace(owner.context, &p, &forward_bytes, &backward_bytes), KILN_OK);
    work = std::make_unique<Scratch>(memory, std::max(forward_bytes, backward_bytes));
    workspace = work->raw();
  }
  PlacedTensor make(const char* name) {
    return {memory, DType::f32, kB, kT, kH, kD, MemoryLayout::dense, name};
  }

  kiln_status forward() {
    return kiln_attention_forward(context, &p, &q.view, &k.view, &v.view, &o.view, lse_data, workspace,
                                  forward_bytes, nullptr);
  }
  kiln_status backward() {
    return kiln_attention_backward(context, &p, &q.view, &k.view, &v.view, &o.view, lse_data, &dout.view,
                                   &dq.view, &dk.view, &dv.view, workspace, backward_bytes, nullptr);
  }
  void expect_refused(kiln_status got, kiln_status wanted, const char* text) {
    EXPECT_EQ(got, wanted) << kiln_last_error();
    EXPECT_NE(std::string_view(kiln_last_error()).find(text), std::string_view::npos) << kiln_last_error();
    for (const double x : o.values())
      ASSERT_EQ(x, static_cast<double>(kUntouched)) << "a refused call wrote o";
  }
  void refused(const char* text, const std::function<void()>& spoil) {
    spoil();
    expect_refused(forward(), KILN_BAD_ARGUMENT, text);
  }

  RankContext memory;
  ContextOwner owner{KILN_CPU};
  kiln_attention_context* context = owner.context;
  kiln_attention_problem p{};
  PlacedTensor q = make("q"), k = make("k"), v = make("v"), o = make(nullptr), dout = make("dout"),
               dq = make(nullptr), dk = make(nullptr), dv = make(nullptr);
  Tensor lse;
  std::unique_ptr<Scratch> work;
  float* lse_data = lse.data<float>();
  void* workspace = nullptr;
  std::size_t forward_bytes = 0, backward_bytes = 0;
};

TEST_F(BadCalls, TheGoodOneIsGood) {
  EXPECT_EQ(forward(), KILN_OK) << kiln_last_error();
  EXPECT_EQ(backward(), KILN_OK) << kiln_last_error();
}

TEST_F(BadCalls, Sizes) {
  const kiln_attention_problem good = p;
  const auto each = [&](const char* text, const std::function<void()>& spoil) {
    p = good;
    refused(text, spoil);
  };
  each("struct_size is 8", [&] { p.struct_size = 8; });
  each("dtype is 0", [&] { p.dtype = 0; });
  each("batch is -1", [&] { p.batch = -1; });
  each("queries is 4294967296", [&] { p.queries = int64_t{1} << 32; });
  each("keys is -5", [&] { p.keys = -5; });
  each("heads is 0", [&] { p.heads = 0; });
  each("2 heads do not share 3", [&] { p.kv_heads = 3; });
  each("head_dim is 0", [&] { p.head_dim = 0; });
  each("head_dim is 257; 256 is the most", [&] { p.head_dim = 257; });
  each("more than can be counted", [&] { p.batch = p.queries = INT32_MAX, p.heads = p.kv_heads = 64; });
  each("scale is nan", [&] { p.scale = NAN; });
  each("causal is 2", [&] { p.causal = 2; });
  each("allow_atomic is -1", [&] { p.allow_atomic = -1; });
  each("reserved is 1", [&] { p.reserved = 1; });
  each("no variant 'flsh'", [&] { p.variant = "flsh"; });
}

TEST_F(BadCalls, Pointers) {
  refused("q is NULL", [&] { q.view.data = nullptr; });
  q = make("q");
  refused("not a multiple of 16", [&] { k.view.data = static_cast<std::byte*>(k.view.data) + 4; });
  k = make("k");
  refused("lse is NULL", [&] { lse_data = nullptr; });
  lse_data = lse.data<float>();
  refused("workspace has 0 bytes", [&] { workspace = nullptr; });
  refused("workspace is at", [&] { workspace = work->raw() + 16; });
  workspace = work->raw();
  refused("this problem takes", [&] { forward_bytes -= 1; });
  forward_bytes += 1;
  refused("o is written, and at the same address as v", [&] { v.view.data = o.view.data; });
}

TEST_F(BadCalls, NullArguments) {
  EXPECT_EQ(kiln_attention_forward(context, nullptr, &q.view, &k.view, &v.view, &o.view, lse_data, workspace,
                                   forward_bytes, nullptr),
            KILN_BAD_ARGUMENT);
  expect_refused(kiln_attention_forward(context, &p, &q.view, nullptr, &v.view, &o.view, lse_data, workspace,
                                        forward_bytes, nullptr),
                 KILN_BAD_ARGUMENT, "k is NULL");
  expect_refused(kiln_attention_variant(context, &p, nullptr), KILN_BAD_ARGUMENT, "name is NULL");
  expect_refused(kiln_attention_create(0, nullptr), KILN_BAD_ARGUMENT, "context is NULL");
  refused("context is NULL", [&] { context = nullptr; });
  kiln_attention_destroy(nullptr);
}

TEST_F(BadCalls, Strides) {
  refused("heads 96 elements apart", [&] { q.view.head_stride = kT * kD; });
  q = make("q");
  refused("rows 31 elements apart", [&] { v.view.row_stride = kH * kD - 1; });
  v = make("v");
  refused("rows -32 elements apart", [&] { v.view.row_stride = -kH * kD; });
  v = make("v");
  refused("batches 0 elements apart", [&] { v.view.batch_stride = 0; });
  v = make("v");
  refused("overlapping rows", [&] { o.view.batch_stride = (kT - 1) * kH * kD; });
  o = make(nullptr);
  refused("beyond any memory", [&] { o.view.batch_stride = INT64_MAX / 8; });
}

TEST_F(BadCalls, OfBackward) {
  dq.view.data = dk.view.data;
  expect_refused(backward(), KILN_BAD_ARGUMENT, "dq is written, and at the same address as dk");
  dq = make(nullptr);
  dout.view.row_stride = 1;
  expect_refused(backward(), KILN_BAD_ARGUMENT, "dout has rows 1 elements apart");
  dout = make("dout");
  backward_bytes = 1;
  expect_refused(backward(), KILN_BAD_ARGUMENT, "workspace has 1 bytes");
}

TEST_F(BadCalls, Offsets) {
  int32_t cu_q[] = {0, 6, 12}, cu_k[] = {0, 6, 12};
  p.cu_queries = cu_q;
  expect_refused(forward(), KILN_BAD_ARGUMENT, "cu_keys is NULL");
  p.cu_keys = cu_k;  // on the CPU these are the host's
  refused("cu_queries[0] is 1", [&] { cu_q[0] = 1; });
  cu_q[0] = 0;
  p.cu_queries = p.cu_keys = nullptr;
  p.host_cu_queries = cu_q;
  expect_refused(forward(), KILN_BAD_ARGUMENT, "host_cu_keys is NULL");
  p.host_cu_keys = cu_k;
  refused("host_cu_queries[0] is 1", [&] { cu_q[0] = 1; });
  cu_q[0] = 0;
  refused("falls from 6 to 3", [&] { cu_k[2] = 3; });
  refused("gives sequence 1 7 rows; keys, the longest, is 6", [&] { cu_k[2] = 13; });
}

TEST_F(BadCalls, AVariantThatCannotRunSaysWhy) {
  p.variant = "naive";
  expect_refused(forward(), KILN_NOT_AVAILABLE, "lse");
  const char* name = nullptr;
  p.variant = nullptr;
  ASSERT_EQ(kiln_attention_variant(context, &p, &name), KILN_OK);
  EXPECT_STREQ(name, "flash");
}

TEST(AbiErrors, BelongToTheThread) {
  kiln_attention_context* none = nullptr;
  EXPECT_EQ(kiln_attention_create(-7, &none), KILN_BAD_ARGUMENT);
  EXPECT_EQ(none, nullptr);
  EXPECT_NE(std::string_view(kiln_last_error()).find("-7"), std::string_view::npos);
  std::thread([] { EXPECT_STREQ(kiln_last_error(), ""); }).join();
}

TEST(AbiErrors, WithoutAGpuItSaysWhy) {
  if (!list_gpus().empty()) GTEST_SKIP() << "this machine has a GPU";
  kiln_attention_context* none = nullptr;
  EXPECT_EQ(kiln_attention_create(0, &none), KILN_NOT_AVAILABLE);
  EXPECT_EQ(none, nullptr);
  EXPECT_STRNE(kiln_last_error(), "");
}

// Which rows of a GPU's table the interface takes, on a GPU that is only imagined.
class AbiChoice : public testing::Test {
 protected:
  static RankOptions imagined(int compute_capability) {
    RankOptions options;
    options.device = Device::meta(DeviceType::cuda);
    options.meta_compute_capability = compute_capability;
    options.matmuls = false;
    return options;
  }
  static std::string reason(RankContext& ctx, const AttentionProblem& p, std::string_view variant) {
    try {
      return cat("took ", abi::choose(ctx, p, variant, false).name);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::unavailable);
      return e.what();
    }
  }
  AttentionProblem p{2, 128, 128, 4, 4, 64, DType::bf16, 0.125f, true};
};

TEST_F(AbiChoice, TakesARowThatWritesLse) {
  RankContext ctx(imagined(90));
  const auto& row = abi::choose(ctx, p, {}, false);
  EXPECT_EQ(std::string_view(row.name).find("atomic"), std::string_view::npos);
  EXPECT_EQ(ctx.allocator().stats().peak_total, 0u) << "a rank without matmuls takes no memory";
  for (const char* other : {"naive", "composed"})
    EXPECT_NE(reason(ctx, p, other).find("returns lse"), std::string::npos) << reason(ctx, p, other);
}

TEST_F(AbiChoice, WhereNoneCanRunEveryReasonIsGiven) {
  RankContext ctx(imagined(90));
  p.dtype = DType::f64;  // the interface has no name for it
  const std::string all = reason(ctx, p, {});
  for (const auto& row : AttentionOp::rows()) {
    if (row.device != DeviceType::cuda) continue;
    EXPECT_NE(all.find(cat(row.name, ": ")), std::string::npos) << all;
    EXPECT_NE(reason(ctx, p, row.name).find(cat("'", row.name, "' cannot run here")), std::string::npos);
  }
}

TEST_F(AbiChoice, OffsetsOnTheDeviceNeedARowThatReadsThem) {
  RankContext ctx(imagined(90));
  p.varlen = true, p.all_queries = p.all_keys = 200;
  EXPECT_TRUE(std::string_view(abi::choose(ctx, p, {}, false).name).starts_with("flash"));
  EXPECT_NE(reason(ctx, p, "tiled").find("takes sequences of one length"), std::string::npos);
  p.dtype = DType::f32;
  EXPECT_STREQ(abi::choose(ctx, p, {}, false).name, "flash_fp32");
}

TEST_F(AbiChoice, AtomicsAreNeverTakenUnasked) {
  RankContext ctx(imagined(90));
  for (const auto& row : AttentionOp::rows()) {
    if (row.device != DeviceType::cuda || std::string_view(row.name).find("atomic") == std::string_view::npos)
      continue;
    EXPECT_NE(reason(ctx, p, row.name).find("allow_atomic"), std::string::npos) << reason(ctx, p, row.name);
  }
}

TEST_F(AbiChoice, EachPassTakesItsOwnRowByShapeAndStrides) {
  RankContext ctx(imagined(90));
  const auto name = [&](Pass pass, bool allow_atomic = false, std::string_view wanted = {}) {
    return std::string(abi::choose(ctx, p, wanted, allow_atomic, pass).name);
  };
  p = {1, 4096, 4096, 1, 1, 64, DType::bf16, 0.125f, true};
  EXPECT_EQ(name(Pass::forward), "flash");  // its keys go in parts
  EXPECT_EQ(name(Pass::backward), "flash_hopper");
  EXPECT_EQ(name(Pass::forward, true), "flash");  // which has no atomic form
  EXPECT_EQ(name(Pass::backward, true), "flash_hopper_atomic");
  EXPECT_EQ(name(Pass::forward, false, "flash_few_rows"), "flash");  // as it was called
  EXPECT_EQ(name(Pass::forward, false, "flash_hopper"), "flash_hopper");
  p.tma = false;
  EXPECT_EQ(name(Pass::backward), "flash");
  EXPECT_NE(reason(ctx, p, "flash_hopper").find("reads by TMA"), std::string::npos);
}

// A caller asks before it shows its tensors.
TEST_F(AbiChoice, TheWorkspaceIsEnoughForAnyStrides) {
  RankContext ctx(imagined(90));
  for (const int64_t T : {1, 200, 1024, 4096}) {
    abi::CheckedProblem problem;
    problem.p = {1, T, T, 1, 1, 64, DType::bf16, 0.125f, true};
    for (const Pass pass : {Pass::forward, Pass::backward}) {
      const std::size_t told = abi::workspace_bytes(ctx, problem, pass);
      for (const bool tma : {true, false}) {
        AttentionProblem shown = problem.p;
        shown.tma = tma;
        const auto& row = abi::choose(ctx, shown, {}, false, pass);
        EXPECT_GE(told, row.workspace(shown, pass)) << row.name << " " << T;
      }
    }
  }
}

}  // namespace
}  // namespace kiln
