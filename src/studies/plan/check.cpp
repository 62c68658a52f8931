#include "studies/plan/check.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "device/device_room.h"
#include "perf/model/machine.h"
#include "studies/place.h"

namespace kiln {
namespace {

// As many devices as there are ranks, each with its share of the machine, all in one node.
PlanRequest plan_of(const PlanCheckRequest& q, int devices) {
  PlanRequest p = q.plan;
  p.share = 1.0 / devices;
  p.node = devices;
  p.top = 0;
  if (p.strategies.empty()) p.strategies = {"ddp", "zero1", "zero2", "fsdp", "tp"};
  return p;
}

RanksStudy study_of(const PlanCheckRequest& q) {
  RanksStudy s;
  s.size = q.plan.model;
  s.precision = q.plan.precision;
  s.preset = q.plan.preset;
  s.link = q.plan.link;
  s.context = q.plan.context;
  s.micro_steps = q.plan.micro_steps;
  s.warmups = q.warmups;
  s.steps = q.steps;
  s.device = q.device;
  s.threads = q.threads;
  s.seed = q.plan.seed;
  s.stop = q.stop;
  return s;
}

RanksWork work_for(const PlanCheckRequest& q, const PlanCheckRow& row) {
  RanksWork work = work_of(study_of(q), row.devices, row.predicted.batch);
  work.spec.model.recompute = q.plan.recompute;
  return work;
}

MakeRankStrategy maker_of(const PlanRow& row) {
  StrategyOptions sharing;
  if (row.layout.strategy == "fsdp") sharing.prefetch = row.prefetch;
  return mesh_maker(std::string(row.layout.strategy_name()), sharing, row.layout.tensor);
}

std::vector<PlanCheckRow> candidates_of(const PlanCheckRequest& q, int devices) {
  std::vector<PlanCheckRow> rows;
  const PlanReport report = plan(plan_of(q, devices), devices);
  for (const PlanRow& r : report.rows) {
    if (!r.fits || !r.layout.runs()) continue;
    PlanCheckRow& row = rows.emplace_back();
    row.devices = devices;
    row.rank = static_cast<int>(rows.size());
    row.predicted = r;
    if (static_cast<int>(rows.size()) == q.candidates) break;
  }
  if (rows.empty()) refuse_too_large(report);
  return rows;
}

// Ranks that split the batch alike train on the same tokens: their losses agree.
void compare(std::vector<PlanCheckRow>& rows) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const Layout &a = rows[i].predicted.layout, &b = rows[j].predicted.layout;
      if (rows[i].devices != rows[j].devices || a.data != b.data) continue;
      compare_losses({rows[i], rows[i].run}, {rows[j], rows[j].run}, b.name());
      break;
    }
  }
}

}  // namespace

void machine_here(PlanCheckRequest& q) {
  const KnownMachine known = known_machine(q.folder, machine_of(q.device, 0));
  const DType compute = policy_of(q.plan.precision).compute;
  q.plan.hardware_note = known.note;
  if (known.hardware) {
    q.plan.hardware = *known.hardware;
  } else {
    const MeasuredPlace place = measure_place(q.device, 0, {compute});
    Hardware& h = q.plan.hardware;
    h = {};
    h.name = "here";
    h.title = place.name;
    h.from = "measured now";
    h.kind = q.device.target;
    h.measured = true;
    h.bytes_per_s = place.ceilings.copy;
    h.flops = {{std::string(name_of(compute)), place.ceilings.flops.at(compute).per_second}};
  }
  q.plan.hardware.memory = static_cast<double>(free_memory_on(q.device));
}

void check_plan_check(const PlanCheckRequest& q) {
  if (q.device.is_meta())
    throw Error("meta runs no kernels, so there is nothing to compare a plan with", "use --device cpu",
                ErrorKind::usage);
  if (q.plan.ffn_only)
    throw Error(cat("size ", q.plan.ffn_only->name, " is for calculations, and cannot be run"),
                "leave --check out, or take another --size", ErrorKind::usage);
  if (!q.plan.link)
    throw Error("--check runs ranks on a modelled link, and none is given",
                "add --link latency=50us,bandwidth=1GB/s", ErrorKind::usage);
  RanksStudy study;
  study.oversubscribe = q.oversubscribe;
  for (const int devices : q.plan.devices) check_study_ranks(study, devices);
}

std::vector<PlanChoice> choices_of(const std::vector<PlanCheckRow>& rows) {
  std::vector<PlanChoice> choices;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (choices.empty() || choices.back().devices != rows[i].devices)
      choices.push_back({rows[i].devices, i, i, 0});
    PlanChoice& c = choices.back();
    const auto measured = [&](std::size_t row) { return rows[row].run.timing.p50; };
    if (measured(i) < measured(c.best)) c.best = i;
    c.over_best = measured(c.first) / measured(c.best) - 1;
  }
  return choices;
}

PlanCheckReport plan_check(const PlanCheckRequest& q,
                           const std::function<void(const std::string&)>& progress) {
  PlanCheckReport report;
  const LoadWatch load(q.device);
  report.request = q;
  report.kind = TimeModel(q.plan.hardware, policy_of(q.plan.precision).compute).kind();
  for (const int devices : q.plan.devices) {
    std::vector<PlanCheckRow> rows = candidates_of(q, devices);
    for (const PlanCheckRow& row : rows) check_ranks_fit(work_for(q, row), maker_of(row.predicted));
    check_rank_step(work_for(q, rows.front()), q.folder, progress);
    for (int round = 0; round < q.rounds && !report.stopped; ++round) {
      for (PlanCheckRow& row : rows) {
        report.stopped = report.stopped || (q.stop && q.stop());
        if (report.stopped) break;
        progress(fmt::format("{}, round {} of {}", row.predicted.layout.name(), round + 1, q.rounds));
        add_round(row.run, time_ranks(work_for(q, row), maker_of(row.predicted)));
      }
    }
    for (PlanCheckRow& row : rows)
      if (!row.run.timing.samples.empty()) report.rows.push_back(std::move(row));
    if (report.stopped) break;
  }
  progress("");
  report.load = load.load();
  compare(report.rows);
  report.choices = choices_of(report.rows);
  const MeasuredPlace place = find_place(q.device, threads_per_rank(q.threads, q.plan.devices.front()));
  report.device = q.device.str();
  report.device_name = place.name;
  report.isa = place.isa;
  report.threads = place.threads;
  return report;
}

}  // namespace kiln
