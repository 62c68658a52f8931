// The state a run needs besides weights and optimizer state to resume as if it had never stopped: the
// device's record of the last step, the position in the data, and the inputs of the final totals. It is
// small: one JSON text. Numbers are written with as many digits as it takes to read back the same bits.
#pragma once

#include <string>
#include <string_view>

#include "data/batch_loader.h"
#include "ops/step_scalars/step_scalars.h"

namespace kiln {

// What may not change between two parts of one run; the model's shape is in config.json.
struct RunIdentity {
  std::string precision;
  std::string tokenizer;  // its fingerprint; empty for token files that came without one
  std::string optimizer = "adamw";
  friend bool operator==(const RunIdentity&, const RunIdentity&) = default;
};

// Sums over the whole run, over all its parts.
struct RunTotals {
  double first_loss = 0, last_loss = 0;
  double seconds = 0;  // of the steps counted in `tokens`; the first of each part, which warms up, is not
  int64_t tokens = 0;
};

struct TrainState {
  StepScalars scalars;
  LoaderState loader;
  RunIdentity identity;
  RunTotals totals;
  std::string recompute = "none";  // the policy, explicitly: what a budget came to

  int64_t step() const { return scalars.attempt; }
};

std::string train_state_json(const TrainState& state);
TrainState parse_train_state(std::string_view text, std::string_view source);  // Error, `source` first

}  // namespace kiln
