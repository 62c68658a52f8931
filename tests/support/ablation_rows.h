// Rows of an ablation as they are stored, without measuring any.
#pragma once

#include <vector>

#include "base/json.h"

namespace kiln::ablation_rows {

inline Json samples(double ms) {
  Json all = Json::array();
  for (int i = 0; i < 8; ++i) all.push_back(ms * (1 + 0.001 * i));
  return all;
}

inline Json row(const char* group, const char* name, double ms, double peak_mib) {
  return {{"command", "ablate"},
          {"study", "s1"},
          {"group", group},
          {"switch", name},
          {"switches", *name == 0 ? Json::array() : Json{name}},
          {"gate", "passed"},
          {"size", "tiny"},
          {"batch", 2},
          {"ctx", 64},
          {"device", "cpu"},
          {"dtype", "fp32"},
          {"p50_ms", ms},
          {"mean_ms", ms},
          {"ci95_low_ms", 0.99 * ms},
          {"ci95_high_ms", 1.01 * ms},
          {"verdict", "stable"},
          {"raw_samples", samples(ms)},
          {"tokens_per_s", 128e3 / ms},
          {"predicted_ms", ms / 4},
          {"floor_ms", 1.5},
          {"peak_bytes", peak_mib * 0x1p20},
          {"predicted_peak_bytes", peak_mib * 0x1p20},
          {"floor_bytes", 0x1p20},
          {"peak_by_tag", {{"param", 0x1p20}, {"activation", (peak_mib - 1) * 0x1p20}}},
          {"gate_steps", 4},
          {"gate_errors", {{"logits", 1e-6}, {"gradients", 2e-6}, {"worst_gradient", "w"}, {"loss", 3e-7}}},
          {"gate_tolerances", {{"logits", 2e-5}, {"gradients", 1e-4}, {"loss", 1e-4}}},
          {"baseline_first_loss", 5.5},
          {"baseline_last_loss", 4.25},
          {"build_id", "b1"},
          {"host", {{"device_name", "Machine"}}},
          {"time", "2026-01-02T03:04:05Z"}};
}

inline Json without_figures(Json r, const char* gate, const char* reason) {
  for (const char* key :
       {"p50_ms", "mean_ms", "raw_samples", "tokens_per_s", "predicted_ms", "peak_bytes", "verdict"})
    r.erase(key);
  r["gate"] = gate;
  r["reason"] = reason;
  return r;
}

inline Json added_row(const char* name, const Json& switches, double ms, double peak_mib) {
  Json r = row("added", name, ms, peak_mib);
  r["switches"] = switches;
  return r;
}

inline std::vector<Json> study() {
  return {row("baseline", "", 20, 8),
          row("alone", "fused_rope", 16, 8),
          row("alone", "bf16", 20.01, 5),
          without_figures(row("alone", "cuda_graph", 1, 1), "not available", "cpu cannot capture a step"),
          row("added", "fused_rope", 16, 8),
          added_row("bf16", {"fused_rope", "bf16"}, 10, 4),
          without_figures(row("added", "cuda_graph", 1, 1), "not available", "cpu cannot capture a step"),
          row("again", "", 20.01, 8)};
}

}  // namespace kiln::ablation_rows
