#include "studies/memory/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/plain_number.h"
#include "device/device_room.h"
#include "report/charts/memory_svg.h"
#include "report/html/memory_html.h"
#include "studies/step/step_policy.h"
#include "train/memory_prediction.h"
#include "train/presets.h"

namespace kiln {
namespace {

constexpr double kCpuSeconds = 4e12;  // FLOPs that take a CPU of two cores half a minute

std::string title_of(const MemoryRow& r) {
  return fmt::format("{}, {}, {}, batch {}, ctx {}", r.size.name, name_of(r.spec.mode),
                     name_of(r.spec.precision), r.spec.step.batch, r.spec.step.context);
}

void write_files(const MemoryStudyRequest& request, const MemoryRecord& record, const MemoryAnalysis& a,
                 MemoryRow& row) {
  std::string name = fmt::format("{}-{}-b{}-c{}-{}", row.size.name, name_of(row.spec.precision),
                                 row.spec.step.batch, row.spec.step.context, name_of(row.spec.mode));
  if (request.preset != "optimized") name += fmt::format("-{}", request.preset);
  if (request.recompute != Recompute::none) name += fmt::format("-{}", name_of(request.recompute));
  std::replace(name.begin(), name.end(), ':', '-');
  for (const std::string& kind : request.exports) {
    const std::string path =
        (std::filesystem::path(request.folder) / fmt::format("{}.{}", name, kind)).string();
    AtomicFile file(path);
    const TextSink sink = [&file](std::string_view text) { file.append(text); };
    const std::string title = fmt::format("kiln memory: {} on {}", title_of(row), record.device);
    if (kind == "svg") sink(memory_svg(record, a, title));
    if (kind == "html") write_memory_html(record, a, title, sink);
    if (kind == "pickle") write_snapshot_pickle(record, sink);
    if (kind == "json") write_snapshot_json(record, sink);
    file.commit();
    row.files.push_back(path);
  }
}

void read_trace(const MemoryStudyRequest& request, const MemoryRecord& record, MemoryRow& row) {
  const MemoryAnalysis a = analyse(record);
  row.peak = a.peak;
  if (!record.events.empty()) row.peak_phase = record.events[a.peak.event].phase;
  row.own_peak = a.own_peak;
  row.phases = a.phases;
  row.events = record.events.size();
  row.dropped = record.dropped;
  row.by_op = group_by(record, a, op_key);
  row.by_line = group_by(record, a, line_key);
  row.by_layer = group_by(record, a, layer_key);
  for (const LargeAllocation& l : largest_allocations(record, a, request.detail)) {
    row.largest.push_back({l.bytes, l.count, l.live_at_peak, op_key(record, l.origin),
                           line_key(record, l.origin), l.origin.function, l.layers, l.origin.tag});
  }
  const auto T = static_cast<std::size_t>(row.spec.step.context);
  row.scores = scores_at_peak(a, static_cast<std::size_t>(row.spec.step.batch * row.spec.model.heads) * T *
                                     T * size_of(policy_of(row.spec.precision).compute));
  write_files(request, record, a, row);
}

// The folder of results, of which the study's own files are in one below.
std::string results_of(const MemoryStudyRequest& request) {
  return std::filesystem::path(request.folder).parent_path().string();
}

void run_row(const MemoryStudyRequest& request, MemoryRow& row) {
  const RankOptions rank = memory_rank(request, row.spec);
  row.policy = resolve_policy(row.spec, rank, results_of(request));
  row.floor = floor_bytes(row.spec);
  row.params = static_cast<std::size_t>(count_params(row.spec.model).total());
  row.stream =
      static_cast<std::size_t>(row.spec.step.batch * row.spec.step.context * row.spec.model.d_model) *
      size_of(policy_of(row.spec.precision).value);
  const MemoryTraceOptions options{.steps = request.steps,
                                   .most_events = static_cast<std::size_t>(request.most_events)};
  const MemoryTracedStep planned = trace_step(row.spec, planned_for(rank), options);
  row.predicted = planned.stats;
  row.not_measured = why_not_run(request, planned.stats, planned.flops, options.steps);
  if (!row.not_measured.empty()) return read_trace(request, planned.record, row);
  const MemoryTracedStep run = trace_step(row.spec, rank, options);
  row.measured = run.stats;
  read_trace(request, run.record, row);
}

// One model, one precision, one phase: what the two sweeps take.
StepSpec only_spec(const MemoryStudyRequest& r) {
  const auto one = [](const char* option, std::size_t n) {
    if (n != 1)
      throw Error(fmt::format("{} has {} values; this study takes one", option, n), {}, ErrorKind::usage);
  };
  one("--size", r.sizes.size());
  one("--precision", r.precisions.size());
  one("--phase", r.modes.size());
  StepSpec spec;
  spec.model = config_of(r.sizes.front());
  spec.precision = r.precisions.front();
  spec.mode = r.modes.front();
  spec.step.batch = r.batch;
  spec.step.micro_steps = r.micro_steps;
  spec.step.context = r.contexts.front();
  return spec;
}

}  // namespace

RankOptions memory_rank(const MemoryStudyRequest& request, StepSpec& spec) {
  RankOptions rank = options_for(request.device, request.threads, request.seed);
  const RunVariants chosen = choose_variants(request.preset, request.variants, request.device.target);
  chosen.apply_to(spec.model);
  spec.model.compile = request.compile;
  rank.variants = chosen.ops;
  return rank;
}

std::string why_not_run(const MemoryStudyRequest& request, const MemoryStats& predicted, double flops,
                        int steps) {
  if (request.device.is_meta()) return "meta runs no kernels";
  if (request.measure == MeasureChoice::never) return "not asked for";
  const std::size_t free_memory = free_memory_on(request.device);
  if (predicted.peak_total > free_memory - free_memory / 10)
    return fmt::format("{} are free on {}", human({free_memory}), request.device.str());
  if (request.measure == MeasureChoice::automatic && request.device.type == DeviceType::cpu &&
      flops * steps > kCpuSeconds)
    return fmt::format("{} TFLOP take this CPU too long; --measure always runs it",
                       plain(flops * steps / 1e12, 3));
  return {};
}

ScalingReport scaling_report(const MemoryStudyRequest& request, const std::string& attention) {
  ScalingReport report;
  ScalingRequest& q = report.request;
  q.spec = only_spec(request);
  if (request.recompute.kind == Recompute::Kind::budget)
    throw Error(fmt::format("--recompute is '{}'; each length would have a policy of its own, and no growth",
                            name_of(request.recompute)),
                "name one policy for all: block, or plan:norms+swiglu", ErrorKind::usage);
  q.spec.model.recompute = request.recompute;
  report.size = request.sizes.front().name;
  q.rank = memory_rank(request, q.spec);
  q.contexts = request.contexts;
  const bool true_fp32 = q.spec.precision == Precision::fp32 && request.device.target == DeviceType::cuda;
  const std::string usual = true_fp32 ? "naive,flash_fp32" : "naive,flash";
  q.attention =
      read_variants("--attention", "attention", attention.empty() ? usual : attention, request.device.target);
  q.measure = [&](const StepSpec&, const MemoryStats& predicted, double flops) {
    return why_not_run(request, predicted, flops, 2).empty();
  };
  report.series = memory_scaling(q);
  return report;
}

RecomputeReport recompute_report(const MemoryStudyRequest& request, std::vector<int64_t> blocks, int steps) {
  RecomputeReport report;
  report.spec = only_spec(request);
  report.size = request.sizes.front().name;
  report.device = request.device.str();
  if (report.spec.mode == StepMode::forward)
    throw Error("--phase is 'forward'; recomputation happens in backward", "take full or forward-backward",
                ErrorKind::usage);
  RecomputeSweepRequest q;
  q.rank = memory_rank(request, report.spec);
  q.spec = report.spec;
  const int64_t layers = report.spec.model.layers;
  const bool all = blocks.empty();
  for (int64_t k = 1; all && k <= layers; k *= 2) blocks.push_back(k);
  q.ks = std::move(blocks);
  for (const int64_t k : q.ks) {
    if (k > layers)
      throw Error(fmt::format("--blocks has {}, and {} has {} blocks", k, report.size, layers), {},
                  ErrorKind::usage);
  }
  q.steps = steps;
  q.measure = [&](const StepSpec&, const MemoryStats& predicted, double flops) {
    const std::string why = why_not_run(request, predicted, flops, q.steps + 1);
    if (!why.empty()) report.not_measured = why;
    return why.empty();
  };
  const StepClock clock =
      clock_of(results_of(request), request.device, request.threads, policy_of(q.spec.precision).compute);
  report.clock = clock.kind();
  report.clock_note = clock.note;
  q.clock = &clock;
  report.sweep = recompute_sweep(q);
  return report;
}

MemoryReport memory_report(const MemoryStudyRequest& request,
                           const std::function<void(const std::string&)>& progress) {
  MemoryReport report{request, {}};
  if (!request.exports.empty()) {
    std::error_code error;
    std::filesystem::create_directories(request.folder, error);
    if (error)
      throw Error(fmt::format("cannot write to {}: {}", request.folder, error.message()),
                  "name another folder with --out");
  }
  for (const NamedModel& size : request.sizes) {
    for (const int64_t context : request.contexts) {
      for (const Precision precision : request.precisions) {
        for (const StepMode mode : request.modes) {
          MemoryRow row;
          row.size = size;
          row.spec.model = config_of(size);
          row.spec.model.recompute = request.recompute;
          row.spec.precision = precision;
          row.spec.step.batch = request.batch;
          row.spec.step.context = context;
          row.spec.step.micro_steps = request.micro_steps;
          row.spec.mode = mode;
          if (request.stop && request.stop()) {
            if (report.rows.empty()) throw Stopped{};
            return report;
          }
          progress(title_of(row));
          run_row(request, row);
          report.rows.push_back(std::move(row));
        }
      }
    }
  }
  return report;
}

}  // namespace kiln
