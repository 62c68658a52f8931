// The weight gradient of head and loss: dW = sum over tokens of (softmax - one-hot) h, the longest sum of a
// step.
#include <algorithm>

#include "autograd/host_floats.h"
#include "autograd/param_store.h"
#include "autograd/tape.h"
#include "ops/cast/cast.h"
#include "ops/linear_cross_entropy/linear_cross_entropy.h"
#include "studies/precision/sum_table.h"

namespace kiln {
namespace {

struct Head {
  std::vector<float> h, w;  // [tokens, hidden], [vocab, hidden]
  std::vector<int32_t> targets;
  std::vector<double> dlogits;  // [vocab, tokens], of the sum of the losses
  std::vector<double> dw;       // right, [vocab, hidden]
};

std::size_t at(int64_t row, int64_t cols, int64_t col) { return static_cast<std::size_t>(row * cols + col); }

// Hidden states have a mean, as a model's do: sums of one sign grow long.
Head draw_head(const SumRequest& r) {
  const PhiloxKey key = philox_key(r.seed, "linear-ce h"), wkey = philox_key(r.seed, "linear-ce w"),
                  tkey = philox_key(r.seed, "linear-ce targets");
  Head d;
  for (int64_t i = 0; i < r.tokens * r.hidden; ++i)
    d.h.push_back(draw_held(key, static_cast<uint64_t>(i), 0.5));
  const double scale = 1 / std::sqrt(static_cast<double>(r.hidden));
  for (int64_t i = 0; i < r.vocab * r.hidden; ++i)
    d.w.push_back(draw_held(wkey, static_cast<uint64_t>(i), 0, scale));
  d.dlogits.resize(static_cast<std::size_t>(r.vocab * r.tokens));
  std::vector<double> logits(static_cast<std::size_t>(r.vocab));
  for (int64_t t = 0; t < r.tokens; ++t) {
    d.targets.push_back(static_cast<int32_t>(philox(tkey, static_cast<uint64_t>(t), 0).x % r.vocab));
    double most = -INFINITY, sum = 0;
    for (int64_t v = 0; v < r.vocab; ++v) {
      double& logit = logits[static_cast<std::size_t>(v)] = 0;
      for (int64_t c = 0; c < r.hidden; ++c)
        logit += static_cast<double>(d.h[at(t, r.hidden, c)]) * static_cast<double>(d.w[at(v, r.hidden, c)]);
      most = std::max(most, logit);
    }
    for (double& logit : logits) sum += logit = std::exp(logit - most);
    for (int64_t v = 0; v < r.vocab; ++v)
      d.dlogits[at(v, r.tokens, t)] =
          logits[static_cast<std::size_t>(v)] / sum - (v == d.targets.back() ? 1 : 0);
  }
  for (int64_t v = 0; v < r.vocab; ++v) {
    for (int64_t c = 0; c < r.hidden; ++c) {
      double sum = 0;
      for (int64_t t = 0; t < r.tokens; ++t)
        sum += d.dlogits[at(v, r.tokens, t)] * static_cast<double>(d.h[at(t, r.hidden, c)]);
      d.dw.push_back(sum);
    }
  }
  return d;
}

// The terms summed to one element of dW.
std::vector<double> terms_of(const SumRequest& r, const Head& d, int64_t v, int64_t c) {
  std::vector<double> terms;
  terms.reserve(static_cast<std::size_t>(r.tokens));
  for (int64_t t = 0; t < r.tokens; ++t)
    terms.push_back(d.dlogits[at(v, r.tokens, t)] * static_cast<double>(d.h[at(t, r.hidden, c)]));
  return terms;
}

SumRow loop_row(const SumRequest& r, const Head& d, const SumLoop& loop) {
  SumRow row{"dW", loop.dtype, std::string(name_of(loop.method)), "loop, host",
             static_cast<int>(r.tokens - 1)};
  const std::vector<float> dlogits(d.dlogits.begin(), d.dlogits.end());
  std::vector<float> h(d.h.size());  // [hidden, tokens]: both in the order of the sum
  for (int64_t t = 0; t < r.tokens; ++t)
    for (int64_t c = 0; c < r.hidden; ++c) h[at(c, r.tokens, t)] = d.h[at(t, r.hidden, c)];
  std::vector<double> dw(d.dw.size());
  with_sums(loop.dtype, loop.method, philox_key(r.seed, "linear-ce rounding"), [&](auto make) {
    const auto body = [&] {
      for (int64_t v = 0; v < r.vocab; ++v) {
        for (int64_t c = 0; c < r.hidden; ++c) {
          const std::size_t i = at(v, r.hidden, c);
          auto sum = make(static_cast<uint64_t>(i) * static_cast<uint64_t>(r.tokens));
          const float *dl = &dlogits[at(v, r.tokens, 0)], *x = &h[at(c, r.tokens, 0)];
          for (int64_t t = 0; t < r.tokens; ++t) sum.add(dl[t] * x[t]);
          dw[i] = sum.value();
        }
      }
    };
    row.ns = time_loop_ns(r, static_cast<double>(d.dw.size() * static_cast<std::size_t>(r.tokens)), body);
  });
  PredictionNorm predicted_norm;
  for (int64_t v = 0; v < r.vocab; ++v)
    for (int64_t c = 0; c < r.hidden; ++c)
      predicted_norm.add(predict_sum(terms_of(r, d, v, c), format_of(loop.dtype), loop.method),
                         d.dw[at(v, r.hidden, c)]);
  row.error = relative_error(dw, d.dw);
  row.predicted = predicted_norm.predicted();
  row.bound = predicted_norm.bound();
  row.floor = rounded_once(d.dw, loop.dtype);
  const double numbers = loop.method == SumMethod::kahan ? 2 : 1;
  const auto inputs = static_cast<double>(4 * r.tokens * (r.vocab + r.hidden));
  row.bytes =
      (inputs + numbers * static_cast<double>(size_of(loop.dtype)) * static_cast<double>(d.dw.size())) /
      static_cast<double>(d.dw.size() * static_cast<std::size_t>(r.tokens));
  return row;
}

// A head of some size on the device, in the dtypes of a layout.
class DeviceHead {
 public:
  DeviceHead(RankContext& ctx, const ParamLayout& layout, int64_t tokens, int64_t vocab, int64_t hidden)
      : ctx_(ctx), weight_(params_.add("weight", {vocab, hidden}, {})) {
    params_.materialize(ctx, layout);
    x_ = ctx.zeros({tokens, hidden}, params_.policy().value);
    targets_ = ctx.zeros({tokens}, DType::i32);
    one_ = upload_as(ctx, {1}, DType::f32, std::vector<float>{1});
  }
  ~DeviceHead() { ctx_.tape().reset(); }
  DeviceHead(const DeviceHead&) = delete;
  DeviceHead& operator=(const DeviceHead&) = delete;

  void set(const Head& d) {
    upload_floats(ctx_, weight_.value, d.w);
    upload_floats(ctx_, x_, d.h);
    ctx_.upload(targets_, d.targets.data());
  }
  void step() {
    params_.begin_step();
    ctx_.tape().reset();
    const Tensor loss = linear_cross_entropy(ctx_, cast_for(ctx_, x_, weight_), weight_, targets_);
    ctx_.tape().backward(loss, one_);
  }
  std::vector<float> gradient() {
    std::vector<float> grad(static_cast<std::size_t>(weight_.grad.numel()));
    download_floats(ctx_, weight_.grad, grad);
    return grad;
  }
  PrecisionPolicy policy() const { return params_.policy(); }

 private:
  RankContext& ctx_;
  ParamStore params_;
  Param& weight_;
  Tensor x_, targets_, one_;
};

// The op sums in fp32; what is narrow are the gradients of the logits, which the matmul reads, and the
// arena.
SumRow op_row(RankContext& ctx, const SumRequest& r, const Head& d, const ParamLayout& layout) {
  SumRow row{"dW", DType::f32, "op", {}, static_cast<int>(r.tokens - 1)};
  DType arena = DType::f32;
  {
    DeviceHead head(ctx, layout, r.tokens, r.vocab, r.hidden);
    head.set(d);
    head.step();
    row.dtype = head.policy().compute;
    arena = head.policy().grad;
    std::vector<double> dw;
    for (float g : head.gradient()) dw.push_back(static_cast<double>(g) * static_cast<double>(r.tokens));
    row.error = relative_error(dw, d.dw);
    row.quantity = arena == DType::f32 ? "dW" : cat("dW in ", name_of(arena));
  }
  const FloatFormat compute = format_of(row.dtype);
  PredictionNorm predicted_norm;
  for (int64_t v = 0; v < r.vocab; ++v) {
    for (int64_t c = 0; c < r.hidden; ++c) {
      const double right = d.dw[at(v, r.hidden, c)];
      SumPrediction f = predict_sum(terms_of(r, d, v, c), format_of(DType::f32), SumMethod::plain);
      for (int64_t t = 0; t < r.tokens; ++t)
        add_term_rounding(f, compute.spacing(d.dlogits[at(v, r.tokens, t)]),
                          static_cast<double>(d.h[at(t, r.hidden, c)]));
      add_term_rounding(f, format_of(arena).spacing(right), 1);
      predicted_norm.add(f, right);
    }
  }
  row.predicted = predicted_norm.predicted();
  row.bound = predicted_norm.bound();
  row.floor = rounded_once(d.dw, arena);
  const auto side = static_cast<int64_t>(std::sqrt(static_cast<double>(r.timed())));
  const int64_t hidden = std::max<int64_t>(8, side / 4);
  DeviceHead head(ctx, layout, side, side, hidden);
  const OpCost cost =
      time_op(ctx, r, LinearCrossEntropyOp::kName,
              static_cast<double>(side) * static_cast<double>(side) * static_cast<double>(hidden),
              [&] { head.step(); });
  row.ran = cost.ran;
  row.ns = cost.ns;
  row.bytes = cost.bytes;
  return row;
}

}  // namespace

SumTable linear_ce_sums(const SumRequest& r) {
  SumTable table{
      "linear_ce_dw",
      cat("linear-cross-entropy, dW [", r.vocab, ", ", r.hidden, "] summed over ", r.tokens, " tokens"),
      "product",
      {}};
  const Head d = draw_head(r);
  for (const SumLoop& loop : kSumLoops) table.rows.push_back(loop_row(r, d, loop));
  RankOptions options;
  options.device = r.device;
  RankContext ctx(options);
  for (const ParamLayout& layout :
       {ParamLayout{.precision = Precision::fp32}, ParamLayout{.precision = Precision::bf16},
        ParamLayout{.precision = Precision::bf16, .narrow_grads = true},
        ParamLayout{.precision = Precision::fp16}})
    table.rows.push_back(op_row(ctx, r, d, layout));
  fill_multiples(table);
  return table;
}

}  // namespace kiln
