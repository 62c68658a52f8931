#include "device/cuda/lt_matmul.h"

#include "device/cuda/cuda_check.h"
#include "device/cuda/lt_plan.h"

namespace kiln {

LtMatmuls::LtMatmuls() : impl_(std::make_unique<Impl>()) { KILN_LT_CHECK(cublasLtCreate(impl_->lt.out())); }

LtMatmuls::~LtMatmuls() = default;

void LtMatmuls::run(const LtMatmul& p, void* workspace, std::size_t workspace_bytes, Stream stream) {
  const auto s = static_cast<cudaStream_t>(stream.handle);
  if (p.m == 0 || p.n == 0 || p.batch == 0) return;
  if (p.k == 0) {
    if (p.accumulate) return;
    const std::size_t e = size_of(p.out);
    for (int64_t i = 0; i < p.batch; ++i) {
      auto* d = static_cast<std::byte*>(p.d) + static_cast<std::size_t>(i * p.d_batch_stride) * e;
      KILN_CUDA_CHECK(cudaMemset2DAsync(d, static_cast<std::size_t>(p.d_row_stride) * e, 0,
                                        static_cast<std::size_t>(p.n) * e, static_cast<std::size_t>(p.m), s));
    }
    return;
  }
  const LtKey key = lt_key(p, workspace_bytes);
  auto it = impl_->plans.find(key);
  if (it == impl_->plans.end()) {
    LtPlan plan = describe(key);
    const auto chosen = impl_->chosen.find(key.str());
    if (chosen == impl_->chosen.end()) {
      plan.algorithm = suggestions(impl_->lt.get(), plan, key, 1).front();
    } else {
      check_choice(impl_->lt.get(), plan, key, chosen->second);
      plan.algorithm = chosen->second;
    }
    it = impl_->plans.emplace(key, std::move(plan)).first;
  }
  ++it->second.calls;
  run_plan(impl_->lt.get(), it->second, it->second.algorithm, p, workspace, workspace_bytes, s);
}

}  // namespace kiln
