// The work of `kiln plan`: every layout of a model over N devices, its step time and memory predicted, the
// quickest that fits first. Nothing runs: ops come from the real schedule on meta, times from the hardware
// file.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/model_options.h"
#include "perf/model/hardware.h"
#include "report/tables/study_page.h"
#include "rows/row_outcome.h"
#include "studies/plan/layout.h"
#include "studies/plan/pipeline.h"

namespace kiln {

// Between nodes, where nothing is said: one 400 Gbit/s adapter a device.
inline constexpr LinkModel kDefaultInterLink{10e-6, 50e9};
// Of a link whose hardware file has no latency.
inline constexpr double kDefaultLinkLatency = 3e-6;

struct PlanRequest {
  NamedModel model;
  std::optional<ModelSize> ffn_only;  // instead: linears and nothing else
  std::vector<int> devices = {8};
  Hardware hardware;
  std::string hardware_note = {};  // of where its times are from
  double share = 1;                // of the machine that each rank has; 1/ranks where they share its cores
  int node = 8;
  std::optional<LinkModel> link, inter_link;  // else the hardware file's, and kDefaultInterLink
  std::optional<int64_t> total_batch;         // sequences of a micro-step, all devices
  int64_t batch_per_device = 1;
  int64_t context = 2048;
  Precision precision = Precision::bf16;
  std::string preset = "optimized";
  Recompute recompute = Recompute::none;
  int micro_steps = 1;
  std::vector<std::string> strategies = {};
  std::vector<int> tensor = {}, stages = {};
  int top = 0;  // rows shown; 0: all
  uint64_t seed = 0;

  ModelConfig config() const;
  int64_t parameters() const;
  int64_t batch_of(int devices) const;
  double memory_of_device() const { return hardware.memory * share; }
  Topology topology() const;  // Error(usage) where no link is known
};

struct PlanRow {
  Layout layout;
  int64_t batch = 1;  // sequences of a micro-step, on a rank
  StepParts parts;
  MemoryStats memory;
  const char* memory_by = "meta";  // or "formula"
  bool fits = true;
  double communication = 0;
  int prefetch = 0;
  std::string why_prefetch = {};
  double bubble_share = 0;

  double seconds() const { return parts.total(); }
  std::string_view bound() const { return fits ? parts.bound() : std::string_view("memory"); }
};

struct PlanReport {
  PlanRequest request;
  int devices = 1;
  int64_t batch = 1;
  double model_flops = 0;  // of a step
  double rate = 0;         // FLOP/s of a device, by its data sheet: what MFU is of
  TimeKind kind = TimeKind::roofline;
  std::vector<PlanRow> rows;  // those that fit, the quickest first; then the others, the smallest first
  std::vector<SkippedLayout> skipped;

  double tokens() const;
  double tokens_per_second(const PlanRow& row) const { return tokens() / row.seconds(); }
  double mfu(const PlanRow& row) const { return model_flops / (row.seconds() * rate * devices); }
  bool any_fits() const { return !rows.empty() && rows.front().fits; }
};

PlanReport plan(const PlanRequest& request, int devices);
// One row by itself.
PlanRow plan_layout(const PlanRequest& request, const TimeModel& time, const Layout& layout, int devices);

// Quickest first among those that fit; where times are equal, fewer tensor-parallel ranks and the simpler
// strategy.
void rank_rows(std::vector<PlanRow>& rows);

// Where nothing fits: what the least is, and which knobs reach what a device has.
[[noreturn]] void refuse_too_large(const PlanReport& report);

StudyPage plan_page(const PlanReport& report, bool wide);
StudyPage plan_pages(const std::vector<PlanReport>& reports, bool wide);  // of several numbers of devices

}  // namespace kiln
