#include "train/run/step_prediction.h"

#include <algorithm>

#include "perf/model/step_clock.h"
#include "train/rank_schedule.h"

namespace kiln {

// Micro-steps after the second are like it, so that two of them more tell the time of any number.
std::optional<double> predict_step(const MemoryRequest& request, const RankOptions& rank,
                                   const std::string& results) {
  if (rank.world > 1) return std::nullopt;
  const StepClock clock = clock_of(results, rank.device, rank.threads, DType::f32);
  if (!clock.calibrated()) return std::nullopt;  // a schedule takes a run on meta
  const DType compute = policy_of(request.layout.precision).compute;
  const bool graph = request.step.graph && rank.device.target == DeviceType::cuda;
  const auto seconds = [&](int micro_steps) -> std::optional<double> {
    MemoryRequest fewer = request;
    fewer.step.micro_steps = micro_steps;
    fewer.evaluates = false;
    const std::optional<StepTime> time = clock.predict(record_schedule(fewer, rank).ops, compute, graph);
    return time ? std::optional<double>(time->total()) : std::nullopt;
  };
  const int all = request.step.micro_steps;
  const std::optional<double> few = seconds(std::min(all, 3));
  if (!few || all <= 3) return few;
  return *few + (all - 3) * (*few - *seconds(2));
}

}  // namespace kiln
