#include "perf/model/step_predictor.h"

namespace kiln {

StepPredictor::StepPredictor(const std::string& folder, const Device& device, int threads) {
  if (!folder.empty()) known_ = known_machine(folder, machine_of(device, threads));
}

std::optional<StepTime> StepPredictor::predict(std::span<const TimedOp> ops, DType compute, bool graph) {
  if (!calibrated()) return std::nullopt;
  const TimeModel& model = models_.try_emplace(compute, *known_.hardware, compute).first->second;
  if (!model.calibrated()) return std::nullopt;
  return model.step(ops, graph);
}

}  // namespace kiln
