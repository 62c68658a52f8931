#include "ops/init_weights/init_weights.h"

#include "ops/check.h"
#include "ops/op_call.h"

namespace kiln {
namespace {

Cost cost(const InitWeightsProblem& p, Pass) {  // about 60 integer and 30 floating operations a value
  return {90.0 * static_cast<double>(p.count),
          static_cast<double>(p.count) * static_cast<double>(size_of(p.dtype) + (p.split ? 2 : 0))};
}

const Variant<InitWeightsOp> kRows[] = {
    {"naive",
     DeviceType::cpu,
     nullptr,
     {},
     nullptr,
     cost,
     init_weights_cpu_naive,
     nullptr,
     "init_weights/cpu_naive.cpp"},
    {"naive",
     DeviceType::cuda,
     nullptr,
     {},
     nullptr,
     cost,
     KILN_CUDA_FN(init_weights_cuda_naive),
     nullptr,
     "init_weights_kernel"},
};

}  // namespace

std::span<const Variant<InitWeightsOp>> InitWeightsOp::rows() { return kRows; }

void init_weights(RankContext& ctx, const Tensor& flat, const Tensor& low, const ParamInit& init,
                  std::string_view name, int64_t first, const WeightSlice& slice) {
  check_float_tensor(ctx, InitWeightsOp::kName, "flat", flat);
  const InitWeightsProblem p{flat.numel(), flat.dtype(), low.defined()};
  OpCall<InitWeightsOp> call(ctx, p);
  call.run({p, flat, low, init, philox_key(ctx.seed(), name), first, slice}, {{"flat", flat}});
}

}  // namespace kiln
