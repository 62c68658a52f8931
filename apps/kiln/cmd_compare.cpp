// kiln measure, compare and diff: what a step executes and takes, beside its theory, and beside another step.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "base/nearest_name.h"
#include "dist/strategy/strategies.h"
#include "kiln/bench_options.h"
#include "kiln/console/progress.h"
#include "kiln/console/stop_on_signals.h"
#include "kiln/sweep_options.h"
#include "ops/renamed.h"
#include "perf/model/hardware.h"
#include "rows/result_log.h"
#include "studies/compare/render.h"
#include "studies/diff/render.h"
#include "studies/measure/measure.h"
#include "studies/row_tables.h"

namespace kiln::cli {
namespace {

// What a step can be asked to be, and how it is timed.
struct Asked {
  ModelOptions model = {.sizes = {"tiny"}};
  BenchStepRequest step = {.contexts = {128}, .batch = 4, .warmups = 1, .steps = 10};
  Precision precision = Precision::bf16;
  StepMode mode = StepMode::full;
  std::string preset = "optimized", hardware;
  int64_t context = 128;
  double seconds = 2;
  PageFormat format = PageFormat::text;
  SweepOptions sweep;
};

// Of single configurations and of lists alike.
void add_shared(Options& o, BenchStepRequest& r) {
  o.opt("--variant", r.variants, "op variants on top of the preset: attention=naive,qkv=split,...")
      .value("OP=NAME,...")
      .unset("none")
      .was_values(former_names_in);
  o.opt("--recompute", r.recompute, recompute_form(),
        "activation checkpointing: none, block, every:k or nested");
  o.opt("--clip", r.clip, between(0.0, 1e9), "largest gradient norm; 0: no clipping").unset("none");
  o.opt("--graph", r.graph, kGraphChoices,
        "capture the step as a CUDA graph: on, off or auto (where the device can, but not in the baseline)");
}

void add_configuration(Options& o, Asked& asked) {
  BenchStepRequest& r = asked.step;
  add_model_options(o, asked.model, /*several=*/false);
  add_one_step(o, {r.batch, asked.context, r.micro_steps, asked.precision, asked.mode, asked.preset});
  add_shared(o, r);
}

void add_timing(Options& o, BenchStepRequest& r, double& seconds) {
  o.opt("--warmup", r.warmups, between(1, 1 << 20), "warm-up steps");
  o.opt("--steps", r.steps, between(1, 1 << 20), "timed steps at most");
  o.opt("--seconds", seconds, between(0.01, 1e6), "of timed steps: fewer where they take longer, at least 3");
  o.opt("--threads", r.threads, thread_range(), "CPU threads").unset("all");
}

CompareRequest compare_request(const Asked& asked, const CommonOptions& common) {
  CompareRequest q;
  BenchStepRequest& r = q.measure.step;
  r = asked.step;
  r.sizes = {model_of(asked.model)};
  r.contexts = {asked.context};
  r.precisions = {asked.precision};
  r.modes = {asked.mode};
  r.presets = {asked.preset};
  r.seed = common.seed;
  r.folder = common.out;
  r.device = device_here(common);
  q.measure.seconds = asked.seconds;
  q.hardware = asked.hardware;
  check_measure(q.measure);
  return q;
}

// Ends in an error where nothing was timed: the page has said what could be.
void report_failure(const StepRow& row) {
  if (!row.timed()) throw Error(fmt::format("{}: {}: {}", row.size.name, name_of(row.status), row.reason));
}

void run_compare(const Asked& asked, const Command& command, const CommonOptions& common) {
  const PageFormat format = page_format(command, asked.format, common);
  if (!asked.hardware.empty()) (void)find_hardware(asked.hardware);
  if (asked.sweep.asked()) return run_bench_sweep(asked.sweep, swept(command, common), common, format);
  const CompareRequest request = compare_request(asked, common);
  if (asked.sweep.dry_run) return;
  prepare_results(common.out);
  CompareReport report;
  {
    const StopOnSignals signals;
    const BenchProgress progress;
    report = compare_steps({&request, 1}, [&](const std::string& text) { progress(text); });
  }
  std::fputs(written(compare_page(report, common.wide), format).c_str(), stdout);
  append_results(common.out, compare_result_lines(report));
  for (const ComparedStep& step : report.steps) report_failure(step.measured.row);
}

// --- diff

// "preset=baseline,batch=2,attention=naive": options of the command without their dashes, and op variants.
Asked side_of(const Asked& shared, const std::string& text) {
  Asked asked = shared;
  Options options;
  add_configuration(options, asked);
  for (const std::string& item : split_list(text)) {
    const std::size_t equals = item.find('=');
    const std::string key = item.substr(0, equals);
    if (equals == std::string::npos)
      throw Error(
          fmt::format("'{}' of '{}' is no KEY=VALUE", item, text),
          "a side is a configuration such as preset=baseline,batch=2, or a stored row: FILE or FILE#N",
          ErrorKind::usage);
    if (Option* option = options.find("--" + key)) {
      option->read(item.substr(equals + 1));
      continue;
    }
    std::vector<std::string_view> keys;
    for (const Option& o : options.all()) keys.push_back(std::string_view(o.name()).substr(2));
    if (const std::string near = nearest_name(key, keys); !near.empty())
      throw Error(fmt::format("'{}' is no key of a configuration", key),
                  fmt::format("did you mean '{}'?", near), ErrorKind::usage);
    asked.step.variants += (asked.step.variants.empty() ? "" : ",") + item;
  }
  return asked;
}

bool is_configuration(const std::string& text) {
  return text.find('=') != std::string::npos && !std::filesystem::exists(text.substr(0, text.rfind('#')));
}

CompareReport measured_sides(const std::vector<CompareRequest>& requests) {
  const StopOnSignals signals;
  const BenchProgress progress;
  return compare_steps(requests, [&](const std::string& text) { progress(text); });
}

void run_diff(const Asked& asked, const std::vector<std::string>& sides, const Command& command,
              const CommonOptions& common) {
  const PageFormat format = page_format(command, asked.format, common);
  if (sides.size() != 2)
    throw Error(fmt::format("kiln diff takes two sides; {} given", sides.size()),
                "kiln diff preset=baseline preset=optimized, or two stored rows", ErrorKind::usage);
  std::vector<CompareRequest> requests;
  std::vector<Json> rows(2);
  for (std::size_t i = 0; i < sides.size(); ++i) {
    if (is_configuration(sides[i]))
      requests.push_back(compare_request(side_of(asked, sides[i]), common));
    else
      rows[i] = stored_row(sides[i], common.out);
  }
  if (!requests.empty()) {
    prepare_results(common.out);
    const CompareReport report = measured_sides(requests);
    const std::vector<std::string> lines = compare_result_lines(report);
    append_results(common.out, lines);
    for (const ComparedStep& step : report.steps) report_failure(step.measured.row);
    std::size_t next = 0;
    for (Json& row : rows)
      if (row.is_null()) row = rows_of(lines)[next++];
  }
  const StepDiff diff = diff_rows(rows[0], rows[1], /*by_turns=*/requests.size() == 2);
  std::fputs(written(diff_page(diff, common.wide), format).c_str(), stdout);
}

// --- measure

struct MeasureAsked {
  MeasureRequest request = {.step = {.contexts = {128}, .batch = 4, .warmups = 1, .steps = 10},
                            .by_calls = false};
  ModelOptions model = {.sizes = {"tiny"}};
  PageFormat format = PageFormat::text;
  SweepOptions sweep;
};

void run_measure(MeasureAsked& asked, const Command& command, const CommonOptions& common) {
  const PageFormat format = page_format(command, asked.format, common);
  if (asked.sweep.asked()) return run_bench_sweep(asked.sweep, swept(command, common), common, format);
  BenchStepRequest& r = asked.request.step;
  r.sizes = models_of(asked.model);
  r.seed = common.seed;
  r.folder = common.out;
  r.device = device_here(common);
  check_measure(asked.request);
  if (asked.sweep.dry_run) return;
  prepare_results(common.out);
  MeasureReport report;
  {
    const StopOnSignals signals;
    const BenchProgress progress;
    r.stop = [] { return stop_requested().load(); };
    report = measure(asked.request, [&](const std::string& text) { progress(text); });
  }
  std::fputs(written(measure_page(report, common.wide), format).c_str(), stdout);
  append_results(common.out, measure_result_lines(report));
  const auto timed = [](const MeasuredStep& s) { return s.timed(); };
  for (const MeasuredStep& s : report.steps)
    if (s.row.status == RowStatus::failed || std::none_of(report.steps.begin(), report.steps.end(), timed))
      report_failure(s.row);
}

}  // namespace

void add_measure(Command& c, const CommonOptions& common) {
  const auto asked = std::make_shared<MeasureAsked>();
  BenchStepRequest& r = asked->request.step;
  c.note = "Lists give one row per combination. Operations and bytes are those of the ops that ran.";
  add_model_options(c.options, asked->model, /*several=*/true);
  c.opt("--batch", r.batch, between(1, 1 << 20), "micro-batch size");
  c.opt("--ctx,--context", r.contexts, between(1, 1 << 24), "sequence length");
  c.opt("--grad-accum", r.micro_steps, between(1, 1 << 16), "gradient accumulation: micro-steps of a step");
  c.opt("--precision,--dtype", r.precisions, list_form(precision_form()), "{}").offers(precision_names());
  c.opt("--mode", r.modes, kStepModes, "forward, forward-backward, or full (with the update)");
  c.opt("--preset", r.presets, presets_form(), "{}").offers(preset_words());
  add_shared(c.options, r);
  c.opt("--strategy", asked->request.strategy, strategy_names(), "how ranks share the step").value("NAME");
  c.opt("--ranks", asked->request.ranks, between(1, 1 << 16),
        "ranks that share it, threads of this process; --batch is each rank's");
  add_timing(c.options, r, asked->request.seconds);
  add_page_options(c, asked->format);
  add_sweep_options(c, asked->sweep);
  c.run = [asked, &c, &common] { run_measure(*asked, c, common); };
}

void add_diff(Command& c, const CommonOptions& common) {
  struct Sides {
    Asked asked;
    std::vector<std::string> texts;
  };
  const auto sides = std::make_shared<Sides>();
  c.note =
      "A and B are configurations that are measured now, by turns: KEY=VALUE,... of the options below "
      "without\n"
      "their dashes, and of op variants (attention=naive). Or stored rows of compare or measure: FILE is "
      "its\n"
      "newest, FILE#N its Nth, FILE#-1 its last.";
  c.opt("SIDE", sides->texts, "A and B").repeat().no_default();
  add_configuration(c.options, sides->asked);
  add_timing(c.options, sides->asked.step, sides->asked.seconds);
  c.opt("--hw", sides->asked.hardware,
        fmt::format("rates of the rooflines: {}, or a hardware file", joined(hardware_names())))
      .unset("this machine's calibration, else measured");
  add_page_options(c, sides->asked.format);
  c.run = [sides, &c, &common] { run_diff(sides->asked, sides->texts, c, common); };
}

void add_compare(Command& c, const CommonOptions& common) {
  const auto asked = std::make_shared<Asked>();
  c.note = "The table is op by op; below it stands where each gap to the roofline comes from.";
  add_configuration(c.options, *asked);
  add_timing(c.options, asked->step, asked->seconds);
  c.opt("--hw", asked->hardware,
        fmt::format("rates of the rooflines: {}, or a hardware file", joined(hardware_names())))
      .unset("this machine's calibration, else measured");
  add_page_options(c, asked->format);
  add_sweep_options(c, asked->sweep);
  c.run = [asked, &c, &common] { run_compare(*asked, c, common); };
}

}  // namespace kiln::cli
