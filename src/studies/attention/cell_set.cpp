#include "studies/attention/cell_set.h"

#include <algorithm>
#include <cstring>

#include "autograd/tape.h"
#include "base/rng.h"
#include "ops/attention/attention.h"
#include "perf/timing/queued_timing.h"

namespace kiln {
namespace {

// Normal numbers that repeat after 64 Ki: drawing them all would take longer than what is timed.
Tensor drawn(RankContext& ctx, const Shape& shape, DType dtype, std::string_view name) {
  constexpr int64_t kPeriod = 65536;
  Tensor t = ctx.empty(shape, dtype, Tag::data);
  if (ctx.device().is_meta() || t.numel() == 0) return t;
  std::vector<std::byte> bytes(t.bytes().value);
  const int64_t fresh = std::min(t.numel(), kPeriod);
  const PhiloxKey key = philox_key(ctx.seed(), name);
  with_float(dtype, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t i = 0; i < fresh; ++i) {
      const T value = static_cast<T>(static_cast<Accum<T>>(philox_normal(key, static_cast<uint64_t>(i))));
      std::memcpy(bytes.data() + static_cast<std::size_t>(i) * sizeof(T), &value, sizeof(T));
    }
  });
  const std::size_t period = static_cast<std::size_t>(fresh) * size_of(dtype);
  for (std::size_t at = period; at < bytes.size(); at += period)
    std::memcpy(bytes.data() + at, bytes.data(), std::min(period, bytes.size() - at));
  ctx.upload(t, bytes.data());
  return t;
}

// Costs and the variant, as the ops that run state them.
class Listener final : public OpObserver {
 public:
  explicit Listener(RankContext& ctx) : ctx_(ctx) { ctx.add_observer(this); }
  ~Listener() override { ctx_.remove_observer(this); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  void on_op_begin(RankContext&, const OpEvent& e) override {
    Cost& sum = e.pass == Pass::forward ? forward : backward;
    sum = sum + e.cost;
    if (e.op == AttentionOp::kName) (e.pass == Pass::forward ? variant : backward_variant) = e.variant;
    if (e.op == "compiled") (e.pass == Pass::forward ? variant : backward_variant) = e.op;  // its softmax
  }
  std::string variant = "composed", backward_variant = "composed";  // which calls other ops, and no attention
  Cost forward, backward;

 private:
  RankContext& ctx_;
};

class Accounts {
 public:
  void add(std::string what, const Tensor& t) {
    if (!t.defined() || std::find(seen_.begin(), seen_.end(), t.buffer()) != seen_.end()) return;
    seen_.push_back(t.buffer());
    add(std::move(what), t.buffer().bytes());
  }
  void add(std::string what, std::size_t bytes) {
    if (bytes > 0) list_.push_back({std::move(what), bytes});
  }
  std::vector<NamedBytes> take() {
    seen_.clear();
    return std::move(list_);
  }
  void forget_tensors() { seen_.clear(); }  // so that backward can give their memory back

 private:
  std::vector<Buffer> seen_;
  std::vector<NamedBytes> list_;
};

}  // namespace

AttentionSet::AttentionSet(RankContext& ctx, const AttentionCell& cell) : ctx_(ctx), cell_(cell) {
  const int64_t width = cell.heads * cell.d;
  if (cell.packed) {
    inputs_.push_back(drawn(ctx, {cell.batch, cell.seq, 3 * width}, cell.dtype, "qkv"));
  } else {
    for (const char* name : {"q", "k", "v"})
      inputs_.push_back(drawn(ctx, {cell.batch, cell.seq, width}, cell.dtype, name));
  }
  given_ = drawn(ctx, {cell.batch, cell.seq, width}, cell.dtype, "do");
}

AttentionSet::~AttentionSet() { begin(); }  // the tape may hold what lives in this set

void AttentionSet::begin() {
  output_ = {};
  ctx_.tape().reset();
}

void AttentionSet::forward() {
  const AttentionOptions options{
      .heads = cell_.heads, .kv_heads = cell_.heads, .causal = cell_.causal, .scale = 0, .variant = {}};
  Tape& tape = ctx_.tape();
  if (cell_.packed) {
    const int64_t width = cell_.heads * cell_.d;
    const auto parts = split(ctx_, tape.watch(inputs_[0]), {width, width, width});
    output_ = attention(ctx_, parts[0], parts[1], parts[2], options);
  } else {
    const Tensor q = tape.watch(inputs_[0]), k = tape.watch(inputs_[1]), v = tape.watch(inputs_[2]);
    output_ = attention(ctx_, q, k, v, options);
  }
}

void AttentionSet::backward() { ctx_.tape().backward(output_, given_); }

AttentionPlan plan_attention(const AttentionCell& cell, const RankOptions& rank) {
  RankOptions options = rank;
  options.device = Device::meta(rank.device.target);
  options.backend = {};
  options.memory_cap = {SIZE_MAX};
  RankContext ctx(options);
  const MemoryStats empty = ctx.allocator().stats();
  Listener listener(ctx);
  AttentionPlan plan;
  Accounts accounts;
  AttentionSet set(ctx, cell);
  set.forward();
  plan.memory.before_backward = ctx.allocator().stats().live_total - empty.live_total;
  const char* const names[] = {"q", "k", "v"};
  std::size_t inputs = 0;
  for (int i = 0; i < set.inputs(); ++i) {
    accounts.add(cell.packed ? "qkv" : names[i], set.input(i));
    inputs += set.input(i).bytes().value;
  }
  accounts.add("o", set.output());
  accounts.add("do", set.given());
  for (const Node& node : ctx.tape().nodes()) {
    for (const NamedTensor& saved : node.saved)
      accounts.add(
          std::string_view(node.op) == AttentionOp::kName ? saved.name : cat(node.op, ".", saved.name),
          saved.tensor);
  }
  accounts.forget_tensors();
  set.backward();
  const MemoryStats after = ctx.allocator().stats();
  plan.memory.peak = after.peak_total - empty.live_total;
  accounts.add(cell.packed ? "dqkv" : "dq+dk+dv", inputs);
  accounts.add("workspace", after.peak[Tag::workspace] - empty.live[Tag::workspace]);
  plan.needed = accounts.take();
  plan.variant = listener.variant;
  plan.backward_variant = listener.backward_variant;
  plan.forward = listener.forward;
  plan.backward = listener.backward;
  return plan;
}

AttentionTimes time_attention(RankContext& ctx, const AttentionCell& cell,
                              const std::vector<AttentionPass>& passes, const AttentionClock& clock) {
  Tensor flushed;
  if (clock.flush > 0) flushed = ctx.empty({static_cast<int64_t>(clock.flush)}, DType::u8, Tag::workspace);
  ctx.allocator().reset_peaks();
  const std::size_t empty = ctx.allocator().stats().live_total;
  AttentionTimes times;
  AttentionSet set(ctx, cell);
  set.forward();
  times.memory.before_backward = ctx.allocator().stats().live_total - empty;
  set.backward();
  times.memory.peak = ctx.allocator().stats().peak_total - empty;
  ctx.synchronize();

  for (AttentionPass pass : passes) {
    auto prepare = [&] {
      set.begin();
      if (pass == AttentionPass::backward) set.forward();
      if (clock.flush > 0) ctx.backend().zero(flushed.raw(), clock.flush, ctx.compute());
    };
    auto call = [&] {
      if (pass != AttentionPass::backward) set.forward();
      if (pass != AttentionPass::forward) set.backward();
    };
    auto time = [&](const TimingOptions& options) {
      if (clock.wait_each) return time_work({call, prepare, [&] { ctx.synchronize(); }}, options);
      return time_queued(
          ctx,
          [&](const TimedCall& timed) {
            prepare();
            timed(call, 1);
          },
          options);
    };
    if (clock.warmup_seconds > 0) {
      (void)time({.warmups = 0,
                  .min_samples = 1,
                  .max_samples = clock.timing.max_samples,
                  .min_seconds = clock.warmup_seconds,
                  .max_seconds = clock.warmup_seconds,
                  .stop = clock.timing.stop});
    }
    times.passes.push_back(time(clock.timing));
  }
  return times;
}

}  // namespace kiln
