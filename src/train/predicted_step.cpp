#include "train/predicted_step.h"

#include <algorithm>
#include <array>
#include <utility>

#include "dist/strategy/ddp.h"

namespace kiln {
namespace {

constexpr double kUs = 1e-6;

class Prediction {
 public:
  Prediction(const Layout& layout, const RankSchedule& schedule, const PlanMachine& machine, int micro_steps,
             const StrategyOptions& sharing)
      : layout_(layout),
        sharing_(sharing),
        data_(machine.topology.seconds(layout.data, layout.tensor)),
        times_(times_of(schedule, op_times_by(machine.time, machine.share), wire_of(schedule),
                        machine.topology.seconds(layout.tensor))),
        repeats_(repeats_of(times_.micro_steps.size(), micro_steps)) {
    if (machine.time.calibrated()) out_.parts.gaps += machine.time.hardware().calibration->step;
  }

  PredictedStep all(int64_t free_bytes) {
    BusyTime busy = times_.update;
    for (std::size_t i = 0; i < times_.micro_steps.size(); ++i)
      busy += times_.micro_steps[i].busy.scaled(repeats_[i]);
    StepParts& p = out_.parts;
    p.compute += kUs * busy.compute;
    p.memory += kUs * busy.memory;
    p.gaps += kUs * busy.gaps;
    p.tensor += kUs * busy.tensor;
    if (layout_.data == 1) return std::move(out_);
    if (layout_.strategy == "fsdp")
      gathered(free_bytes);
    else
      bucketed();
    for (const GroupCall& call : times_.finishing) p.other += alone(call);
    for (const GroupCall& call : times_.updated) p.gathers += alone(call);
    return std::move(out_);
  }

 private:
  // Narrow gradients go as they are (dist/strategy/bucketed.cpp); fsdp sends them as it keeps them.
  int64_t wire_of(const RankSchedule& s) const {
    const DType wire = layout_.strategy == "fsdp" ? s.grad : sharing_.wire;
    return static_cast<int64_t>(std::min(size_of(s.grad), size_of(wire)));
  }

  double alone(const GroupCall& call) {
    const double seconds = seconds_of(call, data_);
    out_.communication += seconds;
    return seconds;
  }

  void gathered(int64_t free_bytes) {
    // Every micro-step has the same windows, but for what its first contributions cost: the last is typical.
    const std::vector<GatherWindowTime>& typical = times_.micro_steps.back().windows;
    const CallSeconds seconds = [this](std::string_view what, int64_t bytes) {
      return bytes == 0 ? 0 : data_(what, bytes);  // a gradient behind the last weight: nothing is gathered
    };
    out_.prefetch = sharing_.prefetch;
    if (free_bytes >= 0) {
      const PrefetchChoice choice = choose_prefetch(typical, layout_.data, seconds, free_bytes);
      out_.prefetch = choice.best.depth;
      out_.why_prefetch = choice.why();
    }
    for (std::size_t i = 0; i < times_.micro_steps.size(); ++i) {
      const GatherReplay r =
          replay_gathers(times_.micro_steps[i].windows, out_.prefetch, layout_.data, seconds);
      double waited = 0;
      for (const GatherUse& u : r.uses) waited += u.exposed();
      out_.parts.gathers += kUs * repeats_[i] * waited;
      out_.parts.gradients += kUs * repeats_[i] * std::max(0.0, r.exposed - waited);
      out_.communication += kUs * repeats_[i] * r.communication;
    }
  }

  void bucketed() {
    const bool zero = layout_.strategy != "ddp";
    const CallSeconds seconds = [&](std::string_view what, int64_t bytes) {
      return data_(zero ? name_of(Collective::reduce_scatter) : what, bytes);
    };
    for (std::size_t i = 0; i < times_.micro_steps.size(); ++i) {
      // DDP and ZeRO-1 sum on the last micro-step only.
      const bool last = i + 1 == times_.micro_steps.size();
      const double sums = layout_.strategy == "zero2" ? repeats_[i] : last ? 1 : 0;
      if (sums == 0) continue;
      const ComputeTimeline& compute = times_.micro_steps[i].compute;
      const BucketOptions form = buckets_of(layout_, sharing_, compute.gradients);
      const OverlapLedger ledger = replay(compute, form, seconds);
      out_.parts.gradients += kUs * sums * (ledger.end - compute.end);
      out_.communication += kUs * sums * communication_alone(compute, form, seconds);
    }
  }

  const Layout& layout_;
  const StrategyOptions& sharing_;
  const CallSeconds data_;
  const ScheduleTimes times_;
  const std::vector<double> repeats_;
  PredictedStep out_;
};

}  // namespace

std::string_view StepParts::bound() const {
  const std::array<std::pair<double, std::string_view>, 8> all = {{{compute, "compute"},
                                                                   {memory, "memory bandwidth"},
                                                                   {gaps, "op gaps"},
                                                                   {tensor, "tensor-parallel sums"},
                                                                   {gradients, "gradient communication"},
                                                                   {gathers, "weight gathers"},
                                                                   {bubble, "pipeline bubble"},
                                                                   {other, "scalars"}}};
  return std::max_element(all.begin(), all.end(),
                          [](const auto& a, const auto& b) { return a.first < b.first; })
      ->second;
}

BucketOptions buckets_of(const Layout& layout, const StrategyOptions& sharing,
                         const std::vector<ReadyGradient>& gradients) {
  const std::string_view name = layout.strategy == "ddp" ? std::string_view(layout.form) : "bucketed";
  BucketOptions form = DdpStrategy::form(name, 1e6 * sharing.bucket_mb, sharing.wire);
  if (layout.strategy == "ddp") return form;
  constexpr double kShare = 1.0 / 8;  // of all gradients: a bucket of ZeRO is no larger (strategies.cpp)
  double all = 0;
  for (const ReadyGradient& g : gradients) all += static_cast<double>(g.bytes);
  form.cap = std::min(form.cap, kShare * all);
  form.in_flight = layout.strategy == "zero2" ? BucketOptions().in_flight : BucketOptions::kAnyNumber;
  return form;
}

PredictedStep predict_step(const Layout& layout, const RankSchedule& schedule, const PlanMachine& machine,
                           int micro_steps, const StrategyOptions& sharing, int64_t free_bytes) {
  return Prediction(layout, schedule, machine, micro_steps, sharing).all(free_bytes);
}

}  // namespace kiln
