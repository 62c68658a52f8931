#include "studies/plan/pipeline.h"

#include <algorithm>

#include "studies/plan/paper_schedule.h"

namespace kiln {
namespace {

// Of one layer, and of all that is not a layer, in a model of two.
struct Split {
  BusyTime layer, ends;
  BusyTime of(double layers) const {
    BusyTime sum = layer.scaled(layers);
    return sum += ends;
  }
};

Split split(const BusyTime& two, const BusyTime& three) {
  Split s;
  s.layer = three;
  s.layer += two.scaled(-1);
  s.ends = two;
  s.ends += s.layer.scaled(-2);
  return s;
}

std::size_t of_layers(std::size_t two, std::size_t three, double layers) {
  const double one = static_cast<double>(three) - static_cast<double>(two);
  return static_cast<std::size_t>(std::max(0.0, static_cast<double>(two) + (layers - 2) * one));
}

ScheduleTimes timed(const RankSchedule& schedule, const PlanMachine& machine) {
  return times_of(schedule, op_times_by(machine.time, machine.share),
                  static_cast<int64_t>(size_of(schedule.grad)),
                  [](std::string_view, int64_t) { return 0.0; });
}

void add(StepParts& parts, const BusyTime& busy) {
  constexpr double kUs = 1e-6;
  parts.compute += kUs * busy.compute;
  parts.memory += kUs * busy.memory;
  parts.gaps += kUs * busy.gaps;
}

}  // namespace

double bubble_share(int64_t stages, int64_t micro_batches) {
  return static_cast<double>(stages - 1) / static_cast<double>(micro_batches + stages - 1);
}

PipelineStep predict_pipeline(const PipelineWork& work, const ScheduleOfLayers& schedule_of,
                              const PlanMachine& machine) {
  const Layout& layout = work.layout;
  const RankSchedule two = schedule_of(2), three = schedule_of(3);
  const ScheduleTimes a = timed(two, machine), b = timed(three, machine);
  const double layers = static_cast<double>(work.layers) / layout.stages;
  const auto m = static_cast<double>(work.micro_batches);
  const BusyTime tick = split(a.micro_steps.back().busy, b.micro_steps.back().busy).of(layers);

  PipelineStep step;
  StepParts& parts = step.parts;
  add(parts, tick.scaled(m));
  add(parts, split(a.update, b.update).of(layers));
  if (machine.time.calibrated()) parts.gaps += machine.time.hardware().calibration->step;
  const LinkModel& link =
      layout.stages <= machine.topology.node ? machine.topology.inside : machine.topology.between;
  const double send = link.latency + static_cast<double>(work.boundary_bytes) / link.bandwidth;
  parts.bubble = (layout.stages - 1) * (1e-6 * tick.total() + 2 * send);
  const int64_t parameters = work.layer_parameters * work.layers / layout.stages + work.end_parameters;
  const CallSeconds sums = machine.topology.seconds(layout.data, layout.stages);
  parts.gradients =
      sums(name_of(Collective::all_reduce), parameters * static_cast<int64_t>(size_of(two.grad)));
  step.bubble_share = bubble_share(layout.stages, work.micro_batches);

  MemoryStats& memory = step.memory;
  memory.peak = state_bytes(layout, work.policy, parameters);
  const auto in_flight = static_cast<double>(std::min<int64_t>(layout.stages, work.micro_batches));
  const Tag running[] = {Tag::activation, Tag::workspace, Tag::data};
  for (const Tag tag : running) {
    const std::size_t once = of_layers(two.memory.peak[tag], three.memory.peak[tag], layers);
    const double saved = tag == Tag::activation ? layers * (static_cast<double>(three.memory.peak[tag]) -
                                                            static_cast<double>(two.memory.peak[tag]))
                                                : 0;
    memory.peak[tag] = once + static_cast<std::size_t>(std::max(0.0, (in_flight - 1) * saved));
  }
  for (const std::size_t bytes : memory.peak.values) memory.peak_total += bytes;
  return step;
}

}  // namespace kiln
