#include "compile/random_region.h"

#include <algorithm>
#include <cmath>

#include "autograd/host_floats.h"
#include "autograd/tape.h"
#include "ops/add/add.h"
#include "ops/elementwise/binary.h"
#include "ops/elementwise/broadcast.h"
#include "ops/elementwise/unary.h"
#include "ops/masked_softmax/masked_softmax.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/softmax/softmax.h"
#include "ops/swiglu/swiglu.h"

namespace kiln {
namespace {

enum Kind {
  kAdd,
  kSub,
  kMul,
  kSilu,
  kSquare,
  kScale,
  kRsqrtOfSquare,
  kMeanTimes,
  kSoftmax,
  kSwiglu,
  kMasked,
  kRms,
  kColumns,
  kKinds
};

std::vector<float> some_values(std::mt19937_64& random, int64_t n) {
  std::normal_distribution<float> normal(0, 0.7f);
  std::vector<float> v(static_cast<std::size_t>(n));
  for (float& x : v)
    x = std::clamp(std::round(normal(random) * 32) / 32, -2.0f, 2.0f);  // exact in every format
  return v;
}

Tensor upload(RankContext& ctx, const std::vector<float>& values, const Shape& shape, DType dtype) {
  Tensor t = ctx.empty(shape, dtype);
  if (dtype == DType::f64) {
    const std::vector<double> wide(values.begin(), values.end());
    ctx.upload(t, wide.data());
  } else {
    upload_floats(ctx, t, values);
  }
  return t;
}

std::vector<double> download(RankContext& ctx, const Tensor& t) {
  std::vector<double> v(static_cast<std::size_t>(t.numel()));
  if (t.dtype() == DType::f64) {
    ctx.download(v.data(), t);
  } else {
    std::vector<float> narrow(v.size());
    download_floats(ctx, t, narrow);
    v.assign(narrow.begin(), narrow.end());
  }
  return v;
}

}  // namespace

RandomRegion::RandomRegion(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<uint64_t>(n)); };
  constexpr int64_t kRows[] = {1, 2, 3, 5, 7, 17, 33},
                    kColumns[] = {1, 2, 3, 5, 8, 15, 16, 17, 31, 33, 64, 65};
  rows = kRows[below(7)];
  columns = kColumns[below(12)];
  for (int i = 1 + below(3); i > 0; --i) padding.push_back(below(3) == 0 ? 1 + below(4) : 0);
  const int count = 1 + below(8);
  for (int i = 0; i < count; ++i) {
    RandomOp op{below(kKinds), below(3), below(3), 0.25 + 0.5 * below(4)};
    weight = weight || op.kind == kRms || op.kind == ::kiln::kColumns;
    ops.push_back(op);
  }
  outputs = 1 + below(std::min(3, count));
}

Tensors RandomRegion::run(RankContext& ctx, const RegionInputs& in) const {
  std::vector<Tensor> values(in.tensors.begin(), in.tensors.end());
  for (const RandomOp& op : ops) {
    const auto pick = [&](int back) {
      return values[values.size() - 1 - static_cast<std::size_t>(back) % values.size()];
    };
    const Tensor a = pick(op.a), b = pick(op.b);
    switch (op.kind) {
      case kAdd:
        values.push_back(add(ctx, a, b));
        break;
      case kSub:
        values.push_back(sub(ctx, a, b));
        break;
      case kMul:
        values.push_back(mul(ctx, a, b));
        break;
      case kSilu:
        values.push_back(silu(ctx, a));
        break;
      case kSquare:
        values.push_back(square(ctx, scale(ctx, a, 0.5)));
        break;
      case kScale:
        values.push_back(scale(ctx, a, op.number));
        break;
      case kRsqrtOfSquare:
        values.push_back(rsqrt(ctx, square(ctx, a), 0.5 + op.number));
        break;
      case kMeanTimes:
        values.push_back(mul_rows(ctx, a, row_mean(ctx, b)));
        break;
      case kSoftmax:
        values.push_back(softmax(ctx, a));
        break;
      case kSwiglu:
        values.push_back(swiglu(ctx, a, b));
        break;
      case kMasked: {
        const float factor = static_cast<float>(op.number);
        values.push_back(masked_softmax(ctx, a, {.scale = factor, .causal = true}));
        break;
      }
      case kRms:
        values.push_back(rms_norm(ctx, a, in.params[0], 1e-2f));
        break;
      default:
        values.push_back(mul_columns(ctx, a, in.params[0]));
        break;
    }
  }
  Tensors out;
  for (int i = 0; i < outputs; ++i) out.push_back(values[values.size() - 1 - static_cast<std::size_t>(i)]);
  return out;
}

Region RandomRegion::region(std::string key) const {
  return {"random", std::move(key), [this](RankContext& c, const RegionInputs& in) { return run(c, in); }};
}

RegionResult run_random(RankContext& ctx, const RandomRegion& r, DType dtype, uint64_t seed, bool compile) {
  std::mt19937_64 random(seed + 1);
  RegionResult result;
  ctx.tape().reset();
  RegionInputs in;
  for (const int64_t pad : r.padding) {
    const Tensor wide =
        upload(ctx, some_values(random, r.rows * (r.columns + pad)), {r.rows, r.columns + pad}, dtype);
    in.tensors.push_back(ctx.tape().watch(wide.narrow(1, 0, r.columns)));
  }
  Param weight;
  weight.name = "weight";
  weight.shape = {r.columns};
  weight.kept = dtype;
  weight.value = upload(ctx, some_values(random, r.columns), {r.columns}, dtype);
  weight.grad = ctx.zeros({r.columns}, dtype);
  if (r.weight) in.params.push_back(ParamRef(weight));
  const Tensors out = compile ? compiled(ctx, r.region(cat("seed ", seed)), in) : r.run(ctx, in);
  std::vector<Tensor> grads;
  for (int i = 0; i < out.size(); ++i) {
    result.values.push_back(download(ctx, out[i]));
    result.names.push_back(cat("output ", i));
    grads.push_back(upload(ctx, some_values(random, out[i].numel()), out[i].shape(), dtype));
  }
  for (int i = 0; i + 1 < out.size(); ++i) {
    if (ctx.tape().needs_grad(out[i])) ctx.tape().give_grad(out[i], grads[static_cast<std::size_t>(i)]);
  }
  ctx.tape().backward(out[out.size() - 1], grads.back());
  for (int i = 0; i < in.tensors.size(); ++i) {
    const Tensor g = ctx.tape().grad(in.tensors[i]);
    if (!g.defined()) continue;
    result.values.push_back(download(ctx, g));
    result.names.push_back(cat("gradient ", i));
  }
  if (r.weight) {
    result.values.push_back(download(ctx, weight.grad));
    result.names.push_back("weight gradient");
  }
  ctx.tape().reset();
  return result;
}

}  // namespace kiln
