// A training step on paper: its operations, memory and roofline, from the schedule that would run (on meta)
// and the ops' own cost functions. For any device there is a hardware file of; nothing runs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "perf/model/time_model.h"
#include "report/tables/study_page.h"
#include "studies/memory/memory_study.h"
#include "studies/step/step.h"
#include "studies/step/step_policy.h"

namespace kiln {

enum class FlopsConvention {
  causal,  // attention counts the pairs a causal mask leaves
  dense,   // and here all of them
};

struct StepTheoryRequest {
  NamedModel model = {};
  int64_t batch = 4, context = 512;
  int micro_steps = 1;
  Precision precision = Precision::bf16;
  StepMode mode = StepMode::full;
  std::string preset = "optimized", variants = {};
  Recompute recompute = Recompute::none;
  FlopsConvention convention = FlopsConvention::causal;
  std::string strategy = "none";
  int ranks = 1;
  Hardware hardware = {};  // of calc time; its kind chooses the variants
  double launch = 0;       // seconds that each op call costs beside its roofline
  uint64_t seed = 0;

  StepSpec spec() const;
  void resolve_policy();     // what a recompute budget comes to, in its place
  StepClock clock() const;   // of the hardware; of nominal rates where none was named
  RankOptions rank() const;  // on meta, as the hardware's kind selects variants
};

// Calls of one op, variant and pass, together.
struct TheoryOp {
  std::string op = {}, variant = {}, pass = {};  // pass: forward, backward, recomputed, update
  int calls = 0;
  Cost cost = {};
  double compute = 0, memory = 0, roofline = 0;  // seconds, summed call by call
  double predicted = 0;                          // likewise; 0 where the hardware is not calibrated
  const char* bound() const { return compute >= memory ? "compute" : "memory"; }
};

struct StepTheory {
  StepTheoryRequest request;
  std::vector<TheoryOp> ops;          // the dearest first
  double model_flops = 0;             // by the formula of the convention
  std::optional<StepTime> predicted;  // where the hardware is calibrated
  double flops() const;
  double recomputed() const;
  double roofline() const;
};

StepTheory step_theory(const StepTheoryRequest& request);
StudyPage flops_page(const StepTheory& theory, bool wide);
StudyPage time_page(const StepTheory& theory, bool wide);

// Peaks by purpose, of one rank.
struct MemoryTheory {
  StepTheoryRequest request;
  MemoryStats peaks;
  double state_bytes = 0;  // of a parameter, by the policy
};
MemoryTheory memory_theory(const StepTheoryRequest& request);
StudyPage memory_theory_page(const MemoryTheory& theory, bool wide);

// Activation checkpointing: textbook formula beside the schedule's own peak, for every policy.
StudyPage checkpoint_page(const StepTheoryRequest& request, bool wide);

}  // namespace kiln
