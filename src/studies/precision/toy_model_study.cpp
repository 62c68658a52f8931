#include "studies/precision/toy_model_study.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "autograd/host_floats.h"
#include "autograd/param_store.h"
#include "autograd/tape.h"
#include "base/rng.h"
#include "ops/cast/cast.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/elementwise/unary.h"
#include "ops/layer_norm/layer_norm.h"
#include "ops/linear/linear.h"
#include "studies/precision/float_format.h"

namespace kiln {
namespace {

// Keeps dtype and shape of what backward writes.
class BackwardOutputs final : public OpObserver {
 public:
  explicit BackwardOutputs(RankContext& ctx) : ctx_(ctx) { ctx.add_observer(this); }
  ~BackwardOutputs() override { ctx_.remove_observer(this); }
  BackwardOutputs(const BackwardOutputs&) = delete;
  BackwardOutputs& operator=(const BackwardOutputs&) = delete;

  void on_op_end(RankContext&, const OpEvent& e) override {
    if (e.pass != Pass::backward) return;
    for (const NamedTensor& t : e.outputs)
      if (t.tensor.defined()) seen_.push_back({std::string(e.op), t.name, t.tensor});
  }
  const Tensor& of(std::string_view op, std::string_view name) const {
    for (const Seen& s : seen_)
      if (s.op == op && s.name == name) return s.tensor;
    throw Error(cat("backward of ", op, " wrote no ", name));
  }

 private:
  struct Seen {
    std::string op, name;
    Tensor tensor;
  };
  RankContext& ctx_;
  std::vector<Seen> seen_;
};

struct ToyModel {
  explicit ToyModel(const ToyModelRequest& r)
      : fc1(params.add("fc1.weight", {r.hidden, r.in}, init(r.in))),
        norm_weight(params.add("norm.weight", {r.hidden}, {ParamInit::Kind::ones, 0, 0}, false)),
        norm_bias(params.add("norm.bias", {r.hidden}, {ParamInit::Kind::normal, 0, 3}, false)),
        fc2(params.add("fc2.weight", {r.classes, r.hidden}, init(r.hidden))) {}

  static ParamInit init(int64_t in) {
    return {ParamInit::Kind::normal, static_cast<float>(1 / std::sqrt(static_cast<double>(in))), 3};
  }

  ParamStore params;
  Param &fc1, &norm_weight, &norm_bias, &fc2;
};

Tensor draw_inputs(RankContext& ctx, const ToyModelRequest& r) {
  std::vector<float> values(static_cast<std::size_t>(r.batch * r.in));
  const PhiloxKey key = philox_key(r.seed, "toy model inputs");
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = philox_normal(key, i);
  Tensor x = ctx.empty({r.batch, r.in}, DType::f32);
  ctx.upload(x, values.data());
  return x;
}

Tensor draw_targets(RankContext& ctx, const ToyModelRequest& r) {
  std::vector<int32_t> values(static_cast<std::size_t>(r.batch));
  const PhiloxKey key = philox_key(r.seed, "toy model targets");
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<int32_t>(philox(key, i, 0).x % static_cast<uint32_t>(r.classes));
  Tensor t = ctx.empty({r.batch}, DType::i32);
  ctx.upload(t, values.data());
  return t;
}

// As an op with activations of dtype `beside` gets it: cast, where the policy says so.
DType dtype_in_use(RankContext& ctx, Param& p, DType beside) {
  return ParamUse(ctx, p, beside, false).tensor().dtype();
}

struct ToyRunResult {
  ToyModelRun run;
  std::vector<float> grads, activated;
};

void read_result(RankContext& ctx, const ToyModel& model, const Tensor& activated, const Tensor& loss,
                 ToyRunResult& result) {
  result.activated.resize(static_cast<std::size_t>(activated.shape().numel()));
  download_floats(ctx, activated, result.activated);
  float value = 0;
  download_floats(ctx, loss, {&value, 1});
  result.run.loss = value;
  result.run.floor = format_of(result.run.policy.compute).unit_roundoff();
  for (const Param& p : model.params.params()) {
    std::vector<float> grad(static_cast<std::size_t>(p.shape.numel()));
    download_floats(ctx, p.grad, grad);
    result.grads.insert(result.grads.end(), grad.begin(), grad.end());
  }
}

// What each tensor's dtype is, beside the one the policy promises.
struct DTypeNotes {
  ToyModelRun& run;
  void tensor(std::string what, const Tensor& t, DType predicted) const {
    run.tensors.push_back({std::move(what), t.shape().str(), t.dtype(), predicted});
  }
  void use(std::string what, const Param& p, DType seen, DType predicted) const {
    run.tensors.push_back({std::move(what), p.shape.str(), seen, predicted});
  }
};

struct ToyForward {
  Tensor activated, loss;
};

// The rule of model/block.cpp: an activation is cast on its way into a matmul, and back for a norm.
ToyForward forward(RankContext& ctx, ToyModel& model, const ToyModelRequest& r, const PrecisionPolicy& policy,
                   const DTypeNotes& note) {
  const Tensor x = draw_inputs(ctx, r), targets = draw_targets(ctx, r);
  note.tensor("input", x, DType::f32);

  const Tensor to_fc1 = cast_for(ctx, x, model.fc1);
  note.use("fc1.weight in its matmul", model.fc1, dtype_in_use(ctx, model.fc1, to_fc1.dtype()),
           policy.compute);
  const Tensor h = linear(ctx, to_fc1, model.fc1);
  note.tensor("fc1 output", h, policy.compute);
  const Tensor activated = relu(ctx, h);
  note.tensor("ReLU output", activated, policy.compute);

  const Tensor to_norm = cast(ctx, activated, model.norm_weight.value.dtype());
  note.use("norm.weight in the norm", model.norm_weight,
           dtype_in_use(ctx, model.norm_weight, to_norm.dtype()), policy.value);
  const Tensor normed = layer_norm(ctx, to_norm, model.norm_weight, model.norm_bias, 1e-5f);
  for (const NamedTensor& saved : ctx.tape().nodes().back().saved)
    if (saved.name != std::string_view("x"))
      note.tensor(cat("norm ", saved.name), saved.tensor, stat_dtype(policy.value));
  note.tensor("norm output", normed, policy.value);

  const Tensor to_fc2 = cast_for(ctx, normed, model.fc2);
  note.use("fc2.weight in its matmul", model.fc2, dtype_in_use(ctx, model.fc2, to_fc2.dtype()),
           policy.compute);
  const Tensor logits = linear(ctx, to_fc2, model.fc2);
  note.tensor("logits", logits, policy.compute);
  const Tensor loss = cross_entropy(ctx, logits, targets);
  note.tensor("loss", loss, stat_dtype(policy.compute));
  return {activated, loss};
}

ToyRunResult run_once(const ToyModelRequest& r, Precision precision) {
  RankOptions options;
  options.threads = 1;
  options.seed = r.seed;
  RankContext ctx(options);
  ToyModel model(r);
  model.params.materialize(ctx, {.precision = precision});
  ToyRunResult result;
  ToyModelRun& run = result.run;
  run.precision = precision;
  run.policy = model.params.policy();
  const PrecisionPolicy& policy = run.policy;
  const DTypeNotes note{run};
  const BackwardOutputs backward(ctx);
  for (const Param& p : model.params.params()) note.tensor(p.name, p.value, policy.value);
  const ToyForward made = forward(ctx, model, r, policy, note);

  const Tensor one = ctx.empty({1}, made.loss.dtype());
  upload_floats(ctx, one, std::vector<float>{1});
  ctx.tape().backward(made.loss, one);
  note.tensor("gradient of logits", backward.of("cross_entropy", "dlogits"), policy.compute);
  note.tensor("gradient of norm input", backward.of("layer_norm", "dx"), policy.value);
  note.tensor("gradient of fc1 output", backward.of("relu", "dx"), policy.compute);
  for (const Param& p : model.params.params()) note.tensor(cat("gradient of ", p.name), p.grad, policy.grad);

  read_result(ctx, model, made.activated, made.loss, result);
  ctx.tape().reset();
  return result;
}

double relative_distance(const std::vector<float>& a, const std::vector<float>& b) {
  double apart = 0, size = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    apart += std::pow(static_cast<double>(a[i]) - b[i], 2);
    size += std::pow(static_cast<double>(b[i]), 2);
  }
  return size == 0 ? 0 : std::sqrt(apart / size);
}

}  // namespace

bool ToyModelRun::as_predicted() const {
  return std::all_of(tensors.begin(), tensors.end(),
                     [](const ToyTensor& t) { return t.dtype == t.predicted; });
}

ToyModelReport toy_model_study(const ToyModelRequest& request) {
  ToyModelReport report{request, {}};
  std::optional<ToyRunResult> reference;
  for (Precision p : {Precision::fp32, Precision::fp16, Precision::autocast}) {
    ToyRunResult result = run_once(request, p);
    if (!reference) reference = result;
    ToyModelRun& run = result.run;
    run.grad_error = relative_distance(result.grads, reference->grads);
    run.loss_error = std::abs(run.loss - reference->run.loss) / std::abs(reference->run.loss);
    for (std::size_t i = 0; i < result.activated.size(); ++i)
      run.switched += (result.activated[i] == 0) != (reference->activated[i] == 0);
    report.runs.push_back(std::move(run));
  }
  return report;
}

}  // namespace kiln
