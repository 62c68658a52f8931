#include "ops/attention/attention.h"

#include <algorithm>
#include <cmath>

#include "ops/attention/flash/flash_split.h"
#include "ops/attention/hopper/backward_workspace.h"
#include "ops/attention/refusals.h"
#include "ops/attention/row_choice.h"
#include "ops/check.h"
#include "ops/cpu_fused.h"
#include "ops/op_call.h"
#include "ops/vectorizable.h"

namespace kiln {
namespace {

// Of sequences whose lengths vary no machine knows more here than their sum: as if all were as long as the
// mean.
AttentionProblem as_if_equal(AttentionProblem p) {
  if (!p.varlen) return p;
  const int64_t count = std::max<int64_t>(p.B, 1);
  p.Tq = (p.all_queries + count - 1) / count;
  p.Tk = (p.all_keys + count - 1) / count;
  p.varlen = false;
  return p;
}

double scores(const AttentionProblem& p) {  // query-key pairs that are not masked, over all heads
  double pairs = 0;
  for (int64_t i = 0; i < p.Tq; ++i) pairs += static_cast<double>(p.visible(i));
  return pairs * static_cast<double>(p.B * p.H);
}

// Naive keeps the whole probability matrix in memory: that traffic, not the arithmetic, is its cost.
Cost naive_cost(const AttentionProblem& p, Pass pass) {
  const double e = static_cast<double>(size_of(p.dtype));
  const double qo = static_cast<double>(p.B * p.Tq * p.H * p.D),
               kv = static_cast<double>(p.B * p.Tk * p.Hkv * p.D);
  const double matrix =
      static_cast<double>(p.B * p.H) * static_cast<double>(p.Tq) * static_cast<double>(p.Tk);
  const double matmul_flops = 2.0 * scores(p) * static_cast<double>(p.D);
  // forward: QK^T and PV; backward: dV, dP, dQ, dK
  return pass == Pass::forward ? Cost{2 * matmul_flops, (2 * qo + 2 * kv + 2 * matrix) * e}
                               : Cost{4 * matmul_flops, (3 * qo + 4 * kv + 3 * matrix) * e};
}

// Flash reads and writes no matrix; backward recomputes the scores, a fifth matmul.
Cost flash_cost(const AttentionProblem& problem, Pass pass) {
  const AttentionProblem p = as_if_equal(problem);
  const double e = static_cast<double>(size_of(p.dtype));
  const double qo = static_cast<double>(p.B * p.Tq * p.H * p.D),
               kv = static_cast<double>(p.B * p.Tk * p.Hkv * p.D);
  const double lse =
      static_cast<double>(p.B * p.H * p.Tq) * static_cast<double>(size_of(stat_dtype(p.dtype)));
  const double matmul_flops = 2.0 * scores(p) * static_cast<double>(p.D);
  // forward: q, k, v in, o out; backward: q, o, dout, k, v in, dq, dk, dv out
  return pass == Pass::forward ? Cost{2 * matmul_flops, (2 * qo + 2 * kv) * e + lse}
                               : Cost{5 * matmul_flops, (4 * qo + 4 * kv) * e + lse};
}

// The probabilities are written for a backward that may come, and have no other reader.
Cost small_m_cost(const AttentionProblem& p, Pass pass) {
  const Cost naive = naive_cost(p, pass);
  if (pass == Pass::backward) return naive;
  const double matrix =
      static_cast<double>(p.B * p.H) * static_cast<double>(p.Tq) * static_cast<double>(p.Tk);
  return {naive.flops, naive.bytes - matrix * static_cast<double>(size_of(p.dtype))};
}

DType same(const AttentionProblem& p) { return p.dtype; }
Shape queries(const AttentionProblem& p) { return {p.batches(), p.query_rows(), p.H * p.D}; }
Shape keys(const AttentionProblem& p) { return {p.batches(), p.key_rows(), p.Hkv * p.D}; }

const SaveDecl<AttentionProblem> kNaiveSaves[] = {
    {"q", SavedFrom::input, queries, same},
    {"k", SavedFrom::input, keys, same},
    {"v", SavedFrom::input, keys, same},
    {"probs", SavedFrom::extra, [](const AttentionProblem& p) { return Shape{p.B, p.H, p.Tq, p.Tk}; }, same},
};

const SaveDecl<AttentionProblem> kFlashSaves[] = {
    {"q", SavedFrom::input, queries, same},
    {"k", SavedFrom::input, keys, same},
    {"v", SavedFrom::input, keys, same},
    {"o", SavedFrom::output, queries, same},
    {"lse", SavedFrom::extra,
     [](const AttentionProblem& p) { return Shape{p.batches(), p.H, p.query_rows()}; },
     [](const AttentionProblem& p) { return stat_dtype(p.dtype); }},
};

// CPU: one key-gradient and one value-gradient accumulator per (batch, kv head).
std::size_t cpu_naive_workspace(const AttentionProblem& p, Pass pass) {
  if (pass == Pass::forward) return 0;
  return static_cast<std::size_t>(2 * p.B * p.Hkv * p.Tk * p.D) * size_of(stat_dtype(p.dtype));
}

// CUDA: the gradient of the scores, written by the kernel that makes dq and read by the one that makes dk and
// dv.
std::size_t cuda_naive_workspace(const AttentionProblem& p, Pass pass) {
  if (pass == Pass::forward) return 0;
  return static_cast<std::size_t>(p.B * p.H * p.Tq * p.Tk) * size_of(stat_dtype(p.dtype));
}

// CUDA, backward: one float per query, the inner product of the output and its gradient.
std::size_t cuda_delta_workspace(const AttentionProblem& p, Pass pass) {
  if (pass == Pass::forward) return 0;
  return static_cast<std::size_t>(p.batches() * p.H * p.query_rows()) * sizeof(float);
}

// CUDA flash: forward, what the splits of the keys leave for the kernel that combines them; backward, in one
// kernel where it fits.
std::size_t cuda_flash_workspace(const AttentionProblem& p, Pass pass) {
  if (pass == Pass::forward) return flash::SplitWorkspace(p).bytes();
  const flash::FlashTiles t = flash::flash_tiles(p.D);
  return t.fused() ? BackwardWorkspace(p, t.width, flash::kTile).total : cuda_delta_workspace(p, pass);
}

// As others, and fp32 sums of dq for the atomics to add to.
std::size_t cuda_tiled_atomic_workspace(const AttentionProblem& p, Pass pass) {
  if (pass == Pass::forward) return 0;
  return cuda_delta_workspace(p, pass) + static_cast<std::size_t>(p.B * p.Tq * p.H * p.D) * sizeof(float);
}

// Backward no less than flash's, a few KiB more: a caller of the C interface asks for bytes before it shows
// the strides that decide between the two.
std::size_t cuda_hopper_workspace(const AttentionProblem& p, Pass pass) {
  if (pass == Pass::forward) return 0;
  return std::max(BackwardWorkspace(p).total, cuda_flash_workspace(p, pass));
}

const Variant<AttentionOp> kRows[] = {
    {"small_m", DeviceType::cpu, cpu_small_m_unsupported, kNaiveSaves, cpu_naive_workspace, small_m_cost,
     attention_cpu_small_m_forward, attention_cpu_naive_backward,
     Kernels("attention/cpu/small_m.cpp", "attention/cpu/naive.cpp")},
    {"flash", DeviceType::cpu, cpu_flash_unsupported, kFlashSaves, attention_cpu_flash_workspace, flash_cost,
     attention_cpu_flash_forward, attention_cpu_flash_backward, "attention/cpu/flash.cpp"},
    {"naive", DeviceType::cpu, needs_equal_lengths, kNaiveSaves, cpu_naive_workspace, naive_cost,
     attention_cpu_naive_forward, attention_cpu_naive_backward, "attention/cpu/naive.cpp"},
    {"composed",
     DeviceType::cpu,
     needs_equal_lengths,
     {},
     nullptr,
     attention_composed_cost,
     nullptr,
     nullptr,
     {},
     true},
    // The same, with the softmax between its matmuls as a compiled region.
    {"compiled",
     DeviceType::cpu,
     needs_equal_lengths,
     {},
     nullptr,
     attention_composed_cost,
     nullptr,
     nullptr,
     {},
     true},
    {"flash_hopper", DeviceType::cuda, cuda_hopper_unsupported, kFlashSaves, cuda_hopper_workspace,
     flash_cost, KILN_CUDA_FN(attention_cuda_hopper_forward), KILN_CUDA_FN(attention_cuda_hopper_backward),
     Kernels("hopper::hopper_forward_kernel",
             "hopper::delta_kernel hopper::hopper_backward_kernel hopper::hopper_write_dq_kernel"),
     false, hopper_yields},
    {"flash", DeviceType::cuda, cuda_flash_unsupported, kFlashSaves, cuda_flash_workspace, flash_cost,
     KILN_CUDA_FN(attention_cuda_flash_forward), KILN_CUDA_FN(attention_cuda_flash_backward),
     Kernels("flash::flash_forward_kernel flash::flash_combine_kernel",
             "hopper::delta_kernel flash::flash_backward_kernel flash::flash_write_dq_kernel "
             "flash::flash_grad_query_kernel flash::flash_grad_key_kernel")},
    // Not chosen unless requested: its bits change from run to run.
    {"flash_hopper_atomic", DeviceType::cuda, cuda_hopper_unsupported, kFlashSaves, cuda_hopper_workspace,
     flash_cost, KILN_CUDA_FN(attention_cuda_hopper_forward),
     KILN_CUDA_FN(attention_cuda_hopper_atomic_backward),
     Kernels("hopper::hopper_forward_kernel",
             "hopper::delta_kernel hopper::hopper_backward_kernel hopper::hopper_write_dq_kernel")},
    {"flash_fp32", DeviceType::cuda, cuda_flash_fp32_unsupported, kFlashSaves, cuda_delta_workspace,
     flash_cost, KILN_CUDA_FN(attention_cuda_flash_fp32_forward),
     KILN_CUDA_FN(attention_cuda_flash_fp32_backward),
     Kernels("tiled::tiled_forward_kernel<Fp32Step,",
             "tiled::tiled_grad_query_kernel<Fp32Step, tiled::tiled_grad_key_kernel<Fp32Step,")},
    // Below the true one, as linear's: its inputs lose 13 of 24 bits, which only a person may decide.
    {"flash_tf32", DeviceType::cuda, cuda_flash_tf32_unsupported, kFlashSaves, cuda_delta_workspace,
     flash_cost, KILN_CUDA_FN(attention_cuda_flash_tf32_forward),
     KILN_CUDA_FN(attention_cuda_flash_tf32_backward),
     Kernels("tiled::tiled_forward_kernel<Tf32Step,",
             "tiled::tiled_grad_query_kernel<Tf32Step, tiled::tiled_grad_key_kernel<Tf32Step,")},
    // The ladder below flash, for study: see tiled/tiled.cu.
    {"tiled_async", DeviceType::cuda, cuda_tiled_step_unsupported, kFlashSaves, cuda_delta_workspace,
     flash_cost, KILN_CUDA_FN(attention_cuda_tiled_async_forward),
     KILN_CUDA_FN(attention_cuda_tiled_async_backward),
     Kernels("tiled::tiled_forward_kernel<TiledAsync,",
             "tiled::tiled_grad_query_kernel<TiledAsync, tiled::tiled_grad_key_kernel<TiledAsync,")},
    {"tiled_split", DeviceType::cuda, cuda_tiled_step_unsupported, kFlashSaves, cuda_delta_workspace,
     flash_cost, KILN_CUDA_FN(attention_cuda_tiled_split_forward),
     KILN_CUDA_FN(attention_cuda_tiled_split_backward),
     Kernels("tiled::tiled_forward_kernel<TiledSplit,",
             "tiled::tiled_grad_query_kernel<TiledSplit, tiled::tiled_grad_key_kernel<TiledSplit,")},
    {"tiled_skip", DeviceType::cuda, cuda_tiled_step_unsupported, kFlashSaves, cuda_delta_workspace,
     flash_cost, KILN_CUDA_FN(attention_cuda_tiled_skip_forward),
     KILN_CUDA_FN(attention_cuda_tiled_skip_backward),
     Kernels("tiled::tiled_forward_kernel<TiledSkip,",
             "tiled::tiled_grad_query_kernel<TiledSkip, tiled::tiled_grad_key_kernel<TiledSkip,")},
    {"tiled", DeviceType::cuda, cuda_tiled_step_unsupported, kFlashSaves, cuda_delta_workspace, flash_cost,
     KILN_CUDA_FN(attention_cuda_tiled_forward), KILN_CUDA_FN(attention_cuda_tiled_backward),
     Kernels("tiled::tiled_forward_kernel<Tiled,",
             "tiled::tiled_grad_query_kernel<Tiled, tiled::tiled_grad_key_kernel<Tiled,")},
    {"tiled_atomic", DeviceType::cuda, cuda_tiled_step_unsupported, kFlashSaves, cuda_tiled_atomic_workspace,
     flash_cost, KILN_CUDA_FN(attention_cuda_tiled_async_forward),
     KILN_CUDA_FN(attention_cuda_tiled_atomic_backward),
     Kernels("tiled::tiled_forward_kernel<TiledAsync,",
             "tiled_prepare_kernel tiled::tiled_grad_key_kernel<TiledAtomic, tiled_finish_query_kernel")},
    {"naive", DeviceType::cuda, needs_equal_lengths, kNaiveSaves, cuda_naive_workspace, naive_cost,
     KILN_CUDA_FN(attention_cuda_naive_forward), KILN_CUDA_FN(attention_cuda_naive_backward),
     Kernels("forward_kernel", "grad_query_kernel grad_key_value_kernel")},
    {"composed",
     DeviceType::cuda,
     needs_equal_lengths,
     {},
     nullptr,
     attention_composed_cost,
     nullptr,
     nullptr,
     {},
     true},
};

AttentionProblem checked_problem(RankContext& ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                                 const AttentionOptions& o) {
  const char* op = AttentionOp::kName;
  check_float_tensor(ctx, op, "q", q);
  check_tensor(ctx, op, "k", k, q.dtype());
  check_tensor(ctx, op, "v", v, q.dtype());
  if (q.shape().rank() != 3)
    fail(op, cat("q has shape ", q.shape().str(), ", [B, T, heads * head_dim] is needed"));
  if (o.heads < 1 || o.kv_heads < 1 || o.heads % o.kv_heads != 0) {
    fail(op, cat(o.heads, " heads do not share ", o.kv_heads, " key/value heads"),
         "heads must be a multiple of kv_heads");
  }
  if (q.dim(2) % o.heads != 0)
    fail(op, cat("last axis of q is ", q.dim(2), ", not a multiple of ", o.heads, " heads"));
  const int64_t D = q.dim(2) / o.heads;
  const Shape kv{q.dim(0), k.shape().rank() == 3 ? k.dim(1) : 0, o.kv_heads * D};
  check_shape(op, "k", k.shape(), kv);
  check_shape(op, "v", v.shape(), kv);
  const float scale = o.scale != 0 ? o.scale : static_cast<float>(1 / std::sqrt(static_cast<double>(D)));
  const AttentionProblem p{q.dim(0), q.dim(1), k.dim(1), o.heads, o.kv_heads, D, q.dtype(), scale, o.causal};
  return with_layout(p, {&q, &k, &v});
}

// What this row saved under `name`; undefined where it saves something else.
Tensor kept(const BackwardPass& pass, std::string_view name) {
  for (const NamedTensor& s : pass.node().saved) {
    if (s.name == name) return s.tensor;
  }
  return {};
}

}  // namespace

std::span<const Variant<AttentionOp>> AttentionOp::rows() { return kRows; }

bool tma_takes(const AttentionProblem& p, const Tensor& t) {
  if (!t.defined()) return true;
  const auto aligned = [&](int64_t elements) {
    return elements * static_cast<int64_t>(size_of(p.dtype)) % kVectorBytes == 0;
  };
  return reinterpret_cast<std::uintptr_t>(t.raw()) % kVectorBytes == 0 && aligned(p.D) &&
         aligned(t.stride(1)) && (t.dim(0) == 1 || aligned(t.stride(0))) && t.dim(1) <= INT32_MAX &&
         t.dim(0) <= INT32_MAX;
}

AttentionProblem with_layout(AttentionProblem p, std::initializer_list<const Tensor*> tensors) {
  p.tma = std::all_of(tensors.begin(), tensors.end(), [&](const Tensor* t) { return tma_takes(p, *t); });
  return p;
}

Tensor attention(RankContext& ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                 const AttentionOptions& options) {
  const AttentionProblem p = checked_problem(ctx, q, k, v, options);
  OpCall<AttentionOp> call(ctx, p, options.variant);
  if (call.composed())
    return attention_composed(ctx, p, q, k, v, std::strcmp(call.row().name, "compiled") == 0);
  Tensor o = ctx.empty(q.shape(), p.dtype);
  const Tensor probs = call.extra("probs"), lse = call.extra("lse");
  {
    const Tensor workspace = call.workspace();
    call.run({p, q, k, v, o, probs, lse, workspace}, {{"o", o}});
  }
  call.record({&q, &k, &v}, {}, {&o},
              {{"q", q}, {"k", k}, {"v", v}, {"o", o}, {"probs", probs}, {"lse", lse}});
  return o;
}

void AttentionOp::run_backward(BackwardPass& pass) {
  BackwardCall<AttentionOp> call(pass);
  const GradSlot dq = pass.grad_in(0), dk = pass.grad_in(1), dv = pass.grad_in(2);
  const Tensor probs = kept(pass, "probs"), o = kept(pass, "o"), lse = kept(pass, "lse");
  const Tensor &dout = pass.grad_out(), &q = pass.saved("q"), &k = pass.saved("k"), &v = pass.saved("v");
  const AttentionProblem p = with_layout(call.problem(), {&dout, &q, &k, &v, &o, &dq.tensor});
  call.choose(p);
  const Tensor workspace = call.workspace();
  call.run({p, dout, q, k, v, probs, o, lse, dq, dk, dv, workspace},
           {{"dq", dq.tensor}, {"dk", dk.tensor}, {"dv", dv.tensor}});
}

}  // namespace kiln
