// A plan against the virtual cluster: its first choices and runners-up are run, ranks as threads of this
// machine with a modelled link, and their measured steps stand beside the predicted ones.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "perf/timing/host_load.h"
#include "studies/plan/plan.h"
#include "studies/ranks/rank_steps.h"

namespace kiln {

struct PlanCheckRequest {
  PlanRequest plan;  // its hardware is filled in by machine_here()
  Device device;
  int threads = 0;  // of each rank; 0: the machine's, split
  int candidates = 4;
  int rounds = 3, warmups = 2, steps = 5;
  bool oversubscribe = false;  // more than kMostRanksPerCore ranks to a core are meant
  std::string folder = {};     // of results: calibrations, and what the gate has found right
  std::function<bool()> stop = nullptr;
};

struct PlanCheckRow : RowOutcome {
  int devices = 1, rank = 1;  // place in the plan
  PlanRow predicted;
  RanksTiming run;

  double ratio() const { return run.timing.p50 / predicted.seconds(); }
};

// Of one number of devices.
struct PlanChoice {
  int devices = 1;
  std::size_t first = 0, best = 0;  // of PlanCheckReport::rows: the plan's, and the quickest measured
  double over_best = 0;             // how much longer the first took, as a share
  bool right() const { return first == best; }
};

struct PlanCheckReport {
  PlanCheckRequest request;
  std::string device, device_name, isa;
  int threads = 1;
  HostLoad load = {};  // what else the machine did meanwhile
  TimeKind kind = TimeKind::roofline;
  std::vector<PlanCheckRow> rows;
  std::vector<PlanChoice> choices;
  bool stopped = false;
};

// The machine as hardware: its file where it has one, else rates measured now.
void machine_here(PlanCheckRequest& request);

// Error(usage) for what cannot be run here.
void check_plan_check(const PlanCheckRequest& request);
PlanCheckReport plan_check(const PlanCheckRequest& request,
                           const std::function<void(const std::string&)>& progress);

// From the rows' measured medians.
std::vector<PlanChoice> choices_of(const std::vector<PlanCheckRow>& rows);

StudyPage plan_check_page(const PlanCheckReport& report, bool wide);
std::vector<std::string> plan_check_lines(const PlanCheckReport& report);

}  // namespace kiln
