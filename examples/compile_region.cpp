// A function of tensors, compiled: a gate with a residual and a norm, as one kernel forward and one backward,
// beside the same function as seven ops.
//
//   build/example_compile_region
//
// Exit status: 0 the two agree, 1 they do not.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <vector>

#include "autograd/region.h"
#include "autograd/tape.h"
#include "ops/add/add.h"
#include "ops/elementwise/binary.h"
#include "ops/elementwise/unary.h"
#include "ops/rms_norm/rms_norm.h"

using namespace kiln;

namespace {

// The function, in ops: y = norm(x + silu(a) * b * (a - b)).
const Region kGated{"gate+norm", {}, [](RankContext& ctx, const RegionInputs& in) {
                      const Tensor &x = in.tensors[0], &a = in.tensors[1], &b = in.tensors[2];
                      const Tensor gated = mul(ctx, mul(ctx, silu(ctx, a), b), sub(ctx, a, b));
                      return Tensors{rms_norm(ctx, add(ctx, x, gated), in.params[0], 1e-5f)};
                    }};

constexpr int64_t kRows = 4096, kColumns = 1024;

// Milliseconds of both passes, and the gradient of `a`.
double run(RankContext& ctx, const RegionInputs& leaves, bool compile, std::vector<float>& gradient) {
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    ctx.tape().reset();
    RegionInputs in = leaves;
    for (Tensor& t : in.tensors) t = ctx.tape().watch(t);
    const auto from = std::chrono::steady_clock::now();
    const Tensor y = (compile ? compiled(ctx, kGated, in) : kGated.run(ctx, in))[0];
    ctx.tape().backward(y, leaves.tensors[0]);  // any gradient will do
    const double ms =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - from).count();
    if (i == 1 || (i > 1 && ms < best)) best = ms;
    ctx.download(gradient.data(), ctx.tape().grad(in.tensors[1]));
  }
  return best;
}

}  // namespace

int main() {
  RankContext ctx;
  RegionInputs in;
  std::vector<float> values(kRows * kColumns), ops(values.size()), made(values.size());
  for (int t = 0; t < 3; ++t) {
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = std::sin(0.37f * static_cast<float>(i % 9973) + static_cast<float>(t));
    in.tensors.push_back(ctx.empty({kRows, kColumns}, DType::f32));
    ctx.upload(in.tensors[t], values.data());
  }
  Param weight;
  weight.name = "weight";
  weight.shape = {kColumns};
  weight.value = ctx.zeros({kColumns}, DType::f32, Tag::param);
  weight.grad = ctx.zeros({kColumns}, DType::f32, Tag::grad);
  ctx.upload(weight.value, values.data());
  in.params.push_back(ParamRef(weight));

  const double ops_ms = run(ctx, in, false, ops), made_ms = run(ctx, in, true, made);
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    difference += std::pow(made[i] - ops[i], 2);
    size += std::pow(ops[i], 2);
  }
  const double error = std::sqrt(difference / size);
  std::printf("as ops %.2f ms, compiled %.2f ms (%.2fx); gradients differ by %.1e\n", ops_ms, made_ms,
              ops_ms / made_ms, error);
  ctx.tape().reset();
  return error < 1e-5 ? 0 : 1;
}
