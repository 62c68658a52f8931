// kiln compare: a step's theory beside its measurement.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "base/error.h"
#include "kiln/bench_options.h"
#include "kiln/console/bench_progress.h"
#include "kiln/console/stop_on_signals.h"
#include "ops/renamed.h"
#include "perf/model/hardware.h"
#include "rows/result_log.h"
#include "studies/compare/render.h"

namespace kiln::cli {
namespace {

// What a step can be asked to be, and how it is timed.
struct Asked {
  NamedModel named;
  ModelOptions model = {.sizes = {"tiny"}};
  BenchStepRequest step = {.contexts = {128}, .batch = 4, .warmups = 1, .steps = 10};
  Precision precision = Precision::bf16;
  StepMode mode = StepMode::full;
  std::string preset = "optimized", hardware;
  int64_t context = 128;
  double seconds = 2;
  PageFormat format = PageFormat::text;
};

void add_configuration(Options& o, Asked& asked) {
  BenchStepRequest& r = asked.step;
  add_model_options(o, asked.model, /*several=*/false);
  o.opt("--batch", r.batch, between(1, 1 << 20), "micro-batch size");
  o.opt("--ctx,--context", asked.context, between(1, 1 << 24), "sequence length");
  o.opt("--grad-accum", r.micro_steps, between(1, 1 << 16), "gradient accumulation: micro-steps of a step");
  o.opt("--precision,--dtype", asked.precision, precision_form(), "fp32, bf16, autocast, pure-bf16 or fp16");
  o.opt("--mode", asked.mode, kStepModes, "forward, forward-backward, or full (with the update)");
  o.opt("--preset", asked.preset, one_of({"optimized", "baseline"}), "optimized or baseline");
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

void add_timing(Options& o, Asked& asked) {
  o.opt("--warmup", asked.step.warmups, between(1, 1 << 20), "warm-up steps");
  o.opt("--steps", asked.step.steps, between(1, 1 << 20), "timed steps at most");
  o.opt("--seconds", asked.seconds, between(0.01, 1e6),
        "of timed steps: fewer where they take longer, at least 3");
  o.opt("--threads", asked.step.threads, thread_range(), "CPU threads").unset("all");
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
  const CompareRequest request = compare_request(asked, common);
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

}  // namespace

void add_compare(Command& c, const CommonOptions& common) {
  const auto asked = std::make_shared<Asked>();
  c.note = "The table is op by op; below it stands where each gap to the roofline comes from.";
  add_configuration(c.options, *asked);
  add_timing(c.options, *asked);
  c.opt("--hw", asked->hardware,
        fmt::format("rates of the rooflines: {}, or a hardware file", joined(hardware_names())))
      .unset("this machine's calibration, else measured");
  add_page_options(c, asked->format);
  c.run = [asked, &c, &common] { run_compare(*asked, c, common); };
}

}  // namespace kiln::cli
