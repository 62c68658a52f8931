#include "train/rank_schedule.h"

#include <algorithm>
#include <unordered_map>

#include "autograd/tape.h"
#include "dist/comm/local_transport.h"
#include "dist/strategy/mesh_strategy.h"
#include "dist/tensor/tensor_parallel.h"
#include "model/model.h"

namespace kiln {
namespace {

using Kind = ScheduleEvent::Kind;

// Writes down what passes, once it is told to.
class Recorder final : public OpObserver {
 public:
  explicit Recorder(RankSchedule& out) : out_(out) {}

  void start() { on_ = true; }
  void note(Kind kind, std::size_t index = 0) {
    if (on_) out_.events.push_back({kind, index});
  }
  void note_use(const Param& p, DType as, std::string_view phase) {
    if (!on_) return;
    note(Kind::use, out_.uses.size());
    out_.uses.push_back({places_.at(&p), as, phase});
  }
  void note_gradient(const Param& p) { note(Kind::gradient, places_.at(&p)); }
  void note_call(Kind kind, const CommCall& call) {
    if (!on_) return;
    std::vector<GroupCall>& calls = kind == Kind::tensor_call ? out_.tensor_calls : out_.data_calls;
    note(kind, calls.size());
    calls.push_back({call.what, static_cast<int64_t>(call.bytes().value)});
  }
  void take_weights(const ParamStore& params) {
    out_.grad = params.policy().grad;
    for (const Param& p : params.params()) {
      places_[&p] = out_.weights.size();
      out_.weights.push_back({p.name, p.padded, p.offset, p.shards > 1});
    }
  }

  void on_op_begin(RankContext&, const OpEvent&) override {
    if (on_ && depth_++ == 0) note(Kind::op, ops_++);
  }
  void on_op_end(RankContext&, const OpEvent&) override {
    if (on_) --depth_;
  }

 private:
  RankSchedule& out_;
  std::unordered_map<const Param*, std::size_t> places_;
  bool on_ = false;
  int depth_ = 0;
  std::size_t ops_ = 0;
};

// Ranks that are not there, as the meta transport has them.
class RecordingTransport final : public Transport {
 public:
  RecordingTransport(int rank, int world, const CommOptions& options, Recorder& recorder, Kind kind)
      : inner_(make_meta_transport(rank, world, options)), recorder_(recorder), kind_(kind) {}
  std::string_view name() const override { return inner_->name(); }
  int rank() const override { return inner_->rank(); }
  int world() const override { return inner_->world(); }
  bool is_local() const override { return true; }
  Bytes scratch(const CommCall& call) const override { return inner_->scratch(call); }
  void run(const CommCall& call, Stream) override {
    if (world() > 1) recorder_.note_call(kind_, call);
  }
  std::unique_ptr<Transport> split(int color, int key) override { return inner_->split(color, key); }
  void abort(const std::string&) override {}

 private:
  std::unique_ptr<Transport> inner_;
  Recorder& recorder_;
  Kind kind_;
};

// A strategy and the hooks it has set, watched.
class RecordingStrategy final : public Strategy {
 public:
  RecordingStrategy(RankContext& ctx, Strategy& inner, Recorder& recorder)
      : ctx_(ctx), inner_(inner), recorder_(recorder) {}

  bool shards_params() const override { return inner_.shards_params(); }
  bool shards_grads() const override { return inner_.shards_grads(); }
  void attach(ParamStore& params) override {
    inner_.attach(params);
    hooks_ = params.params().front().hooks;
    params.set_hooks(this);
    recorder_.take_weights(params);
  }
  void refresh() override { inner_.refresh(); }
  void begin_step() override { inner_.begin_step(); }
  void begin_micro_step(bool last) override {
    recorder_.note(Kind::micro_step);
    inner_.begin_micro_step(last);
  }
  void end_micro_step() override { inner_.end_micro_step(); }
  void finish_gradients() override {
    recorder_.note(Kind::gradients);
    inner_.finish_gradients();
  }
  std::vector<ParamSpan> spans(const ParamStore& params, SpanUnit unit) const override {
    return inner_.spans(params, unit);
  }
  std::vector<Tensor> own_grads(const ParamStore& params) const override { return inner_.own_grads(params); }
  void sum_over_ranks(const Tensor& numbers, std::string_view what) override {
    inner_.sum_over_ranks(numbers, what);
  }
  bool sums_ranks_first() const override { return inner_.sums_ranks_first(); }
  void reduce_scalars(const Tensor& scalars) override { inner_.reduce_scalars(scalars); }
  void after_update() override {
    recorder_.note(Kind::updated);
    inner_.after_update();
  }
  CommVolume volume() const override { return inner_.volume(); }
  bool can_capture() const override { return false; }  // a replayed graph calls no op

  void gather(Param& p, DType as) override {
    recorder_.note_use(p, as, name_of(ctx_.phase()));
    if (hooks_ != nullptr) hooks_->gather(p, as);
  }
  void release(Param& p) override {
    if (hooks_ != nullptr) hooks_->release(p);
  }
  void grad_begin(Param& p) override {
    if (hooks_ != nullptr) hooks_->grad_begin(p);
  }
  void grad_ready(Param& p) override {
    recorder_.note_gradient(p);
    if (hooks_ != nullptr) hooks_->grad_ready(p);
  }

 private:
  RankContext& ctx_;
  Strategy& inner_;
  Recorder& recorder_;
  ParamHooks* hooks_ = nullptr;
};

constexpr int kMicroSteps = 3;

}  // namespace

Cost RankSchedule::cost() const {
  Cost sum;
  for (const TimedOp& op : ops) sum = sum + op.cost;
  return sum;
}

RankSchedule record_schedule(const MemoryRequest& request, const RankOptions& rank) {
  RankSchedule out;
  Recorder recorder(out);
  RankOptions options = rank;
  options.device = Device::meta(rank.device.target);
  options.backend = {};
  RankContext ctx(options);
  // As dist/launch/parallel_rank.h places it, with groups that are watched.
  const int tensor = request.layout.tensor_ranks, data = rank.world / tensor;
  const auto group = [&](int place, int world, Kind kind) {
    return Communicator(ctx, std::make_unique<RecordingTransport>(place, world, request.comm, recorder, kind),
                        request.comm);
  };
  Communicator data_group = group(rank.rank / tensor, data, Kind::data_call);
  Communicator tensor_group = group(rank.rank % tensor, tensor, Kind::tensor_call);
  std::optional<TensorParallel> parts;
  std::unique_ptr<Strategy> strategy = make_strategy(request.strategy, request.sharing, ctx, data_group);
  if (tensor > 1) {
    parts.emplace(ctx, tensor_group);
    strategy = std::make_unique<MeshStrategy>(ctx, tensor_group, std::move(strategy));
  }
  RecordingStrategy watched(ctx, *strategy, recorder);
  const std::unique_ptr<Model> made =
      make_model(request.model, parts ? static_cast<const Partition&>(*parts) : whole_model());
  made->params().materialize(ctx, request.layout);
  watched.attach(made->params());
  StepOptions shape = request.step;
  shape.micro_steps = std::min(shape.micro_steps, kMicroSteps);
  TrainStep step(ctx, *made, watched, shape);
  const std::vector<HostBatch> batches(static_cast<std::size_t>(shape.micro_steps));
  step.run(batches, 0);  // teaches the order in which weights are used
  {
    OpTimes times(ctx);
    ctx.add_observer(&recorder);
    recorder.start();
    step.run(batches, 0);
    ctx.remove_observer(&recorder);
    out.ops = times.take();
  }
  step.finish();
  out.memory = ctx.allocator().stats();
  ctx.tape().reset();
  return out;
}

Cost cost_of_layers(const RankSchedule& shallow, const RankSchedule& deep, int64_t deep_layers,
                    int64_t layers) {
  const Cost two = shallow.cost(), three = deep.cost();
  const auto more = static_cast<double>(layers - deep_layers);
  return {three.flops + more * (three.flops - two.flops), three.bytes + more * (three.bytes - two.bytes)};
}

}  // namespace kiln
