// What a training run reported to its view.
#pragma once

#include <string>
#include <vector>

#include "train/run/train.h"

namespace kiln::cli {

struct TrainRecord final : TrainView {
  TrainSetup setup;
  std::vector<StepReport> steps;
  std::vector<Evaluation> evaluations;
  std::vector<std::string> warnings, notes;
  MemoryStats memory;
  void on_setup(const TrainRequest&, const TrainSetup& s) override { setup = s; }
  void on_step(const StepReport& r) override { steps.push_back(r); }
  void on_evaluation(int64_t, const Evaluation& e) override { evaluations.push_back(e); }
  void on_warning(const std::string& line) override { warnings.push_back(line); }
  void on_note(const std::string& line) override { notes.push_back(line); }
  void on_memory(const MemoryStats& m) override { memory = m; }
};

}  // namespace kiln::cli
