#include "ops/cross_entropy/cross_entropy.h"

#include "ops/check.h"
#include "ops/cpu_fused.h"
#include "ops/op_call.h"

namespace kiln {
namespace {

Cost cost(const CrossEntropyProblem& p, Pass pass) {
  const double n = static_cast<double>(p.rows) * static_cast<double>(p.vocab),
               e = static_cast<double>(size_of(p.dtype));
  const double rows =
      static_cast<double>(p.rows) * (4.0 + 2 * static_cast<double>(size_of(stat_dtype(p.dtype))));
  return pass == Pass::forward ? Cost{4 * n, n * e + rows} : Cost{4 * n, 2 * n * e + rows};
}

Shape per_row(const CrossEntropyProblem& p) { return {p.rows}; }
DType stat(const CrossEntropyProblem& p) { return stat_dtype(p.dtype); }

const SaveDecl<CrossEntropyProblem> kSaves[] = {
    {"logits", SavedFrom::input, [](const CrossEntropyProblem& p) { return Shape{p.rows, p.vocab}; },
     [](const CrossEntropyProblem& p) { return p.dtype; }},
    {"targets", SavedFrom::input, per_row, [](const CrossEntropyProblem&) { return DType::i32; }},
    {"lse", SavedFrom::extra, per_row, stat},
    {"count", SavedFrom::extra, [](const CrossEntropyProblem&) { return Shape{1}; }, stat},
};

std::size_t workspace(const CrossEntropyProblem& p, Pass pass) {
  return pass == Pass::forward ? static_cast<std::size_t>(p.rows) * size_of(stat_dtype(p.dtype)) : 0;
}

const Variant<CrossEntropyOp> kRows[] = {
    {"fused", DeviceType::cpu, needs_fp32_or_narrower<CrossEntropyProblem>, kSaves, workspace, cost,
     cross_entropy_cpu_fused_forward, cross_entropy_cpu_fused_backward, "cross_entropy/cpu_fused.cpp"},
    {"naive", DeviceType::cpu, nullptr, kSaves, workspace, cost, cross_entropy_cpu_naive_forward,
     cross_entropy_cpu_naive_backward, "cross_entropy/cpu_naive.cpp"},
    {"fused", DeviceType::cuda, needs_fp32_or_narrower<CrossEntropyProblem>, kSaves, workspace, cost,
     KILN_CUDA_FN(cross_entropy_cuda_fused_forward), KILN_CUDA_FN(cross_entropy_cuda_fused_backward),
     Kernels("cross_entropy_fused_loss_kernel loss_rows::mean_loss_kernel",
             "cross_entropy_fused_backward_kernel")},
    {"naive", DeviceType::cuda, nullptr, kSaves, workspace, cost,
     KILN_CUDA_FN(cross_entropy_cuda_naive_forward), KILN_CUDA_FN(cross_entropy_cuda_naive_backward),
     Kernels("row_loss_kernel loss_rows::mean_loss_kernel", "backward_kernel")},
};

}  // namespace

std::span<const Variant<CrossEntropyOp>> CrossEntropyOp::rows() { return kRows; }

Tensor cross_entropy(RankContext& ctx, const Tensor& logits, const Tensor& targets,
                     std::string_view variant) {
  const char* op = CrossEntropyOp::kName;
  check_float_tensor(ctx, op, "logits", logits);
  check_tensor(ctx, op, "targets", targets, DType::i32);
  const CrossEntropyProblem p{logits.shape().rows(), logits.shape().last(), logits.dtype()};
  if (targets.numel() != p.rows) {
    fail(op, cat("targets ", targets.shape().str(), " do not match logits ", logits.shape().str()),
         "one target for every row of logits");
  }
  OpCall<CrossEntropyOp> call(ctx, p, variant);
  Tensor loss = ctx.empty({1}, stat_dtype(p.dtype));
  const Tensor lse = call.extra("lse"), count = call.extra("count"), scratch = call.workspace();
  const Tensor flat = targets.reshape({p.rows});
  call.run({p, logits, flat, loss, lse, count, scratch}, {{"loss", loss}});
  call.record({&logits}, {}, {&loss},
              {{"logits", logits.reshape_rows()}, {"targets", flat}, {"lse", lse}, {"count", count}});
  return loss;
}

void CrossEntropyOp::run_backward(BackwardPass& pass) {
  BackwardCall<CrossEntropyOp> call(pass);
  const GradSlot dlogits = pass.grad_in(0);
  call.run({call.problem(), pass.grad_out(), pass.saved("logits"), pass.saved("targets"), pass.saved("lse"),
            pass.saved("count"), dlogits},
           {{"dlogits", dlogits.tensor}});
}

}  // namespace kiln
