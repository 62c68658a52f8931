#include "studies/plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "base/error.h"
#include "studies/plan/paper_schedule.h"
#include "studies/variant_check.h"
#include "train/memory_prediction.h"
#include "train/presets.h"

namespace kiln {
namespace {

PaperModel paper_of(const ModelSize& size) { return {size.d_model, size.d_ff, size.layers}; }

StepOptions step_of(const PlanRequest& q, int64_t batch, int micro_steps) {
  StepOptions s;
  s.batch = batch;
  s.context = q.context;
  s.micro_steps = micro_steps;
  s.graph = false;  // of several ranks none is captured
  return s;
}

MemoryRequest memory_request(const PlanRequest& q, const Layout& layout, int64_t batch, int prefetch) {
  MemoryRequest r;
  r.model = q.config();
  r.step = step_of(q, batch, q.micro_steps);
  r.layout = layout_for(q.precision, r.step, layout.data, layout.strategy == "fsdp");
  r.layout.sharded_grads = layout.strategy == "zero2" && layout.data > 1;
  r.layout.tensor_ranks = layout.tensor;
  r.strategy = layout.strategy_name();
  r.sharing.prefetch = prefetch;
  return r;
}

// Of the ranks that hold one model the last has the largest part of the vocabulary (model/partition.h).
RankOptions rank_of(const PlanRequest& q, const Layout& layout) {
  RankOptions o = options_for(Device::meta(q.hardware.kind), 1, q.seed);
  o.variants = choose_variants(q.preset, "", q.hardware.kind).ops;
  o.world = layout.devices();
  o.rank = layout.tensor - 1;
  return o;
}

RankSchedule schedule_of(const PlanRequest& q, const Layout& layout, int64_t batch, int prefetch) {
  if (!q.ffn_only) return record_schedule(memory_request(q, layout, batch, prefetch), rank_of(q, layout));
  return paper_schedule(paper_of(*q.ffn_only),
                        {.layout = layout,
                         .policy = policy_of(q.precision, layout.data == 1 && q.micro_steps == 1),
                         .tokens = batch * q.context,
                         .micro_steps = q.micro_steps,
                         .prefetch = prefetch,
                         .recompute = q.recompute != Recompute::none});
}

// Layers alone, on one device, a sequence at a time.
RankSchedule schedule_of_layers(const PlanRequest& q, int64_t layers, int64_t micro_batches) {
  PlanRequest of = q;
  of.micro_steps = static_cast<int>(std::min<int64_t>(3, micro_batches));
  if (of.ffn_only)
    of.ffn_only->layers = layers;
  else
    of.model.config.layers = layers;
  return schedule_of(of, {}, 1, 0);
}

PipelineWork pipeline_work(const PlanRequest& q, const Layout& layout, int64_t sequences) {
  PipelineWork w;
  w.layout = layout;
  w.micro_batches = sequences * q.micro_steps;
  w.policy = policy_of(q.precision, layout.data == 1 && w.micro_batches == 1);
  const auto element = static_cast<int64_t>(size_of(w.policy.compute));
  if (q.ffn_only) {
    const PaperModel m = paper_of(*q.ffn_only);
    w.layers = m.layers;
    w.layer_parameters = m.parameters() / m.layers;
    w.boundary_bytes = q.context * m.d_model * element;
    return w;
  }
  const ModelConfig c = q.config();
  const ParamGroups groups = count_params(c);
  w.layers = c.layers;
  w.layer_parameters = (groups.attention + groups.mlp + 2 * c.layers * c.d_model) / c.layers;
  w.end_parameters = std::max(groups.embedding, groups.head);
  w.boundary_bytes = q.context * c.d_model * element;
  return w;
}

PlanRow pipeline_row(const PlanRequest& q, const PlanMachine& machine, const Layout& layout, int64_t batch) {
  PlanRow row;
  row.layout = layout;
  row.batch = batch;
  row.memory_by = "formula";
  const PipelineWork work = pipeline_work(q, layout, batch);
  const PipelineStep step = predict_pipeline(
      work, [&](int64_t layers) { return schedule_of_layers(q, layers, work.micro_batches); }, machine);
  row.parts = step.parts;
  row.memory = step.memory;
  row.bubble_share = step.bubble_share;
  return row;
}

double data_sheet_rate(const Hardware& h, DType compute) {
  for (const auto& [name, rate] : h.flops)
    if (name == name_of(compute)) return rate;
  return h.flops_of(name_of(compute));
}

int order_of(const Layout& l) {
  constexpr std::string_view kSimplest[] = {"none", "ddp", "zero1", "zero2", "fsdp"};
  return static_cast<int>(std::find(std::begin(kSimplest), std::end(kSimplest), l.strategy) - kSimplest);
}

// Of the layouts that kiln runs, where there are such.
const PlanRow& least_of(const std::vector<PlanRow>& rows) {
  return *std::min_element(rows.begin(), rows.end(), [](const PlanRow& a, const PlanRow& b) {
    return std::tuple(!a.layout.runs(), a.memory.peak_total) <
           std::tuple(!b.layout.runs(), b.memory.peak_total);
  });
}

struct Knob {
  std::string what;
  PlanRequest request;
  int devices;
};

// Each by itself, as far as it changes something.
std::vector<Knob> knobs_of(const PlanReport& r) {
  std::vector<Knob> knobs;
  const auto knob = [&](std::string what, int devices, auto change) {
    PlanRequest q = r.request;
    q.top = 0;
    change(q);
    knobs.push_back({std::move(what), std::move(q), devices});
  };
  if (r.request.recompute == Recompute::none)
    knob("--recompute block", r.devices, [](PlanRequest& q) { q.recompute = Recompute::block; });
  if (r.batch > r.devices)
    knob("--batch-per-device 1", r.devices, [](PlanRequest& q) {
      q.total_batch.reset();
      q.batch_per_device = 1;
    });
  if (r.request.recompute == Recompute::none && r.batch > r.devices)
    knob("both", r.devices, [](PlanRequest& q) {
      q.recompute = Recompute::block;
      q.total_batch.reset();
      q.batch_per_device = 1;
    });
  if (r.request.precision != Precision::pure_bf16)
    knob("--precision pure-bf16", r.devices, [](PlanRequest& q) { q.precision = Precision::pure_bf16; });
  if (r.request.context >= 2)
    knob(fmt::format("--ctx {}", r.request.context / 2), r.devices, [](PlanRequest& q) { q.context /= 2; });
  for (int more = 2; more <= 64; more *= 4) {
    knob(fmt::format("--devices {}", r.devices * more), r.devices * more, [&](PlanRequest& q) {
      if (q.total_batch && *q.total_batch % (r.devices * more) != 0) q.total_batch.reset();
    });
  }
  return knobs;
}

}  // namespace

ModelConfig PlanRequest::config() const {
  ModelConfig c = model.config;
  if (ffn_only) {
    c.d_model = ffn_only->d_model;
    c.d_ff = ffn_only->d_ff;
    c.layers = ffn_only->layers;
  }
  c.recompute = recompute;
  choose_variants(preset, "", hardware.kind).apply_to(c);
  return c;
}

int64_t PlanRequest::parameters() const { return ffn_only ? param_count(*ffn_only) : param_count(model); }

int64_t PlanRequest::batch_of(int n) const { return total_batch.value_or(batch_per_device * n); }

Topology PlanRequest::topology() const {
  Topology t{node, {}, inter_link.value_or(kDefaultInterLink)};
  if (link) {
    t.inside = *link;
  } else if (hardware.link) {
    t.inside = {hardware.link->latency > 0 ? hardware.link->latency : kDefaultLinkLatency,
                hardware.link->bytes_per_s};
  } else {
    throw Error(fmt::format("hardware {} says nothing of a link between devices", hardware.name),
                "give --link latency=3us,bandwidth=450GB/s", ErrorKind::usage);
  }
  return t;
}

double PlanReport::tokens() const {
  return static_cast<double>(batch * request.context) * request.micro_steps;
}

PlanRow plan_layout(const PlanRequest& q, const TimeModel& time, const Layout& layout, int devices) {
  const PlanMachine machine{time, devices == 1 ? Topology{} : q.topology(), q.share};
  const int64_t batch = q.batch_of(devices) / layout.data;
  PlanRow row;
  if (layout.stages > 1) {
    row = pipeline_row(q, machine, layout, batch);
  } else {
    row.layout = layout;
    row.batch = batch;
    row.memory_by = q.ffn_only ? "formula" : "meta";
    const bool gathers = layout.strategy == "fsdp";
    StrategyOptions sharing;
    sharing.prefetch = gathers ? 0 : sharing.prefetch;
    RankSchedule schedule = schedule_of(q, layout, batch, sharing.prefetch);
    const double free_bytes = q.memory_of_device() - static_cast<double>(schedule.memory.peak_total);
    const PredictedStep step =
        predict_step(layout, schedule, machine, q.micro_steps, sharing,
                     gathers ? static_cast<int64_t>(std::max(0.0, free_bytes)) : int64_t{-1});
    if (gathers && step.prefetch > 0) schedule = schedule_of(q, layout, batch, step.prefetch);
    row.parts = step.parts;
    row.communication = step.communication;
    row.prefetch = step.prefetch;
    row.why_prefetch = step.why_prefetch;
    row.memory = schedule.memory;
  }
  row.fits = static_cast<double>(row.memory.peak_total) <= q.memory_of_device();
  return row;
}

void rank_rows(std::vector<PlanRow>& rows) {
  std::stable_sort(rows.begin(), rows.end(), [](const PlanRow& a, const PlanRow& b) {
    if (a.fits != b.fits) return a.fits;
    if (!a.fits) return a.memory.peak_total < b.memory.peak_total;
    const auto key = [](const PlanRow& r) {
      return std::tuple(r.seconds(), r.layout.stages, r.layout.tensor, order_of(r.layout));
    };
    return key(a) < key(b);
  });
}

PlanReport plan(const PlanRequest& q, int devices) {
  PlanReport report;
  report.request = q;
  report.devices = devices;
  report.batch = q.batch_of(devices);
  const DType compute = policy_of(q.precision).compute;
  const TimeModel time(q.hardware, compute);
  report.kind = time.kind();
  report.rate = data_sheet_rate(q.hardware, compute) * q.share;
  report.model_flops = report.tokens() * (q.ffn_only ? train_flops_per_token(*q.ffn_only, q.context)
                                                     : train_flops_per_token(q.model, q.context));
  Layouts layouts = layouts_for({.model = q.config(),
                                 .ffn_only = q.ffn_only.has_value(),
                                 .devices = devices,
                                 .node = q.node,
                                 .batch = report.batch,
                                 .micro_steps = q.micro_steps,
                                 .strategies = q.strategies,
                                 .tensor = q.tensor,
                                 .stages = q.stages});
  for (const Layout& layout : layouts.all) report.rows.push_back(plan_layout(q, time, layout, devices));
  report.skipped = std::move(layouts.skipped);
  rank_rows(report.rows);
  return report;
}

void refuse_too_large(const PlanReport& r) {
  const PlanRow& least = least_of(r.rows);
  const PlanRequest& q = r.request;
  std::string reach, closer;
  for (const Knob& knob : knobs_of(r)) {
    std::size_t bytes = SIZE_MAX;
    try {
      bytes = least_of(plan(knob.request, knob.devices).rows).memory.peak_total;
    } catch (const Error&) {
      continue;  // a batch that does not divide, say
    }
    std::string& where = static_cast<double>(bytes) <= q.memory_of_device() ? reach : closer;
    where += fmt::format("{}{} takes {}", where.empty() ? "" : ", ", knob.what, human({bytes}));
  }
  const std::string name = q.ffn_only ? std::string(q.ffn_only->name) : q.model.name;
  throw Error(fmt::format("{} does not fit on {} {} of {}: the least is {} on each, with {}", name, r.devices,
                          r.devices == 1 ? "device" : "devices",
                          human({static_cast<std::size_t>(q.memory_of_device())}),
                          human({least.memory.peak_total}), least.layout.name()),
              reach.empty() ? fmt::format("no single change is enough: {}", closer) : reach);
}

}  // namespace kiln
