// What `kiln memory` says: text for people, one JSON document for programs (docs/memory.md lists its keys).
#pragma once

#include <string>
#include <vector>

#include "studies/memory/memory.h"
#include "report/charts/svg_parts.h"

namespace kiln::cli {

std::string memory_text(const MemoryReport& report);
std::string memory_json(const MemoryReport& report);
std::vector<std::string> memory_result_lines(const MemoryReport& report);

// Why a tag holds more or less under `b` than under `a`.
std::string reason_for(Tag tag, const PrecisionPolicy& a, const PrecisionPolicy& b);

struct ScalingReport {
  ScalingRequest request;
  std::string size;
  std::vector<ScalingSeries> series;
  std::vector<std::string> files;  // pictures
};
std::string scaling_text(const ScalingReport& report);
std::string scaling_json(const ScalingReport& report);
// Activations' peaks, and the score matrices in them, over the length of a sequence.
std::vector<NamedPicture> scaling_charts(const ScalingReport& report);

struct RecomputeReport {
  StepSpec spec;
  std::string size, device;
  RecomputeSweep sweep;
  std::string not_measured;
};
std::string sweep_text(const RecomputeReport& report);
std::string sweep_json(const RecomputeReport& report);

}  // namespace kiln::cli
