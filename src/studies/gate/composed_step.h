// The composed step: the ops of a row put together as the row has them, at full width, but two blocks and at
// most 128 tokens, against the textbook's step in fp32.
#pragma once

#include <optional>

#include "studies/gate/probe.h"
#include "studies/step/synthetic_step.h"
#include "tune/tune_file.h"

namespace kiln {

// As `spec`, in two blocks and a few tokens.
StepSpec composed_spec(const StepSpec& spec, const Device& device);
// Its reference: the preset baseline in fp32, which recomputes and captures nothing.
StepSpec reference_spec(const StepSpec& composed, const Device& device);
RankOptions reference_rank(const RankOptions& rank);

// Weights and tokens follow from the rank's seed. Of a mode that ends before the update, nothing behind it is
// looked at. Steps that are captured run until the graph's replay shows in the loss.
GateProbe probe_step(const RankOptions& rank, const std::optional<TuneFile>& tuning, const StepSpec& spec);

// What is off in `judged`; empty: nothing.
std::string why_composed_differs(const GateProbe& reference, const GateProbe& judged, Precision precision,
                                 GateErrors& errors);

}  // namespace kiln
