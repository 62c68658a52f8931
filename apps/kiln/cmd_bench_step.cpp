// kiln bench step: the whole training step, timed.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <memory>

#include "base/error.h"
#include "kiln/bench_commands.h"
#include "kiln/bench_options.h"
#include "kiln/console/progress.h"
#include "kiln/console/stop_on_signals.h"
#include "kiln/sweep_options.h"
#include "ops/renamed.h"
#include "rows/result_log.h"
#include "studies/chart_export.h"
#include "studies/row_tables.h"
#include "studies/step/render.h"
#include "train/run/tuned.h"

namespace kiln::cli {
namespace {

struct Asked {
  BenchStepRequest request;
  ModelOptions model = {.sizes = {"small"}};
  std::optional<int> kernels;
  std::string tune = "auto", charts = "none";
  PageFormat format = PageFormat::text;
  SweepOptions sweep;
};

// Ends in an error where nothing was timed, or where a row failed: the page has said what could be measured.
void report_failures(const BenchStepReport& report) {
  for (const StepRow& row : report.rows) {
    if (row.status == RowStatus::failed)
      throw Error(fmt::format("{} ({}): {}", row.size.name, row.variant_set(), row.reason));
  }
  if (report.stopped || report.any_timed()) return;
  throw Error(fmt::format("nothing could be timed: {}: {}", report.rows.front().size.name,
                          report.rows.front().reason),
              "take a smaller --size, --batch or --ctx, --precision bf16, or --recompute block");
}

void run_bench_step(Asked& asked, const Command& command, const CommonOptions& common) {
  const PageFormat format = page_format(command, asked.format, common);
  const bool charts = read_chart_export(asked.charts);
  if (asked.sweep.asked()) return run_bench_sweep(asked.sweep, swept(command, common), common, format);
  BenchStepRequest& request = asked.request;
  request.begun = std::chrono::steady_clock::now();
  request.sizes = models_of(asked.model);
  request.kernels = asked.kernels.value_or(0);
  request.split = request.split || asked.kernels.has_value();
  request.seed = common.seed;
  request.folder = common.out;
  request.device = device_here(common);
  check_bench_step(request);
  request.tuning = find_tuning(asked.tune, common.out, tune_place(request.device),
                               [](const std::string& line) { fmt::print(stderr, "{}\n", line); });
  if (asked.sweep.dry_run) return;
  prepare_results(common.out);
  BenchStepReport report;
  {
    const StopOnSignals signals;
    const BenchProgress progress;
    request.stop = [] { return stop_requested().load(); };
    report = bench_step(request, [&](const std::string& text) { progress(text); });
  }
  print_page(step_page(report, common.wide), format, common.wide);
  const std::vector<std::string> lines = step_result_lines(report);
  append_results(common.out, lines);
  if (charts) write_step_charts(common.out, rows_of(lines));
  report_failures(report);
}

}  // namespace

void add_bench_step(Command& bench, const CommonOptions& common) {
  auto asked = std::make_shared<Asked>();
  BenchStepRequest& r = asked->request;
  Command& c =
      bench.sub("step", "time of a whole training step",
                "kiln bench step --size small,medium --batch 4 --ctx 512 --precision bf16 --preset both "
                "--split");
  c.note = "Lists give one row per combination.";
  add_model_options(c.options, asked->model, /*several=*/true);
  c.opt("--ctx,--context", r.contexts, between(1, 1 << 24), "sequence length");
  c.opt("--precision,--dtype", r.precisions, list_form(precision_form()), "{}").offers(precision_names());
  c.opt("--preset", r.presets, presets_form(), "{}").offers(preset_words());
  c.opt("--mode", r.modes, kStepModes, "forward, forward-backward, or full (with the update)");
  c.opt("--batch", r.batch, between(1, 1 << 20), "micro-batch size");
  c.opt("--grad-accum", r.micro_steps, between(1, 1 << 16), "gradient accumulation: micro-steps of a step")
      .was("--micro-steps");
  c.opt("--warmup", r.warmups, between(0, 1 << 20), "warm-up steps");
  c.opt("--steps", r.steps, between(1, 1 << 20), "timed steps");
  c.opt("--clip", r.clip, between(0.0, 1e9), "largest gradient norm; 0: no clipping").unset("none");
  c.opt("--variant", r.variants, "op variants on top of the preset: attention=naive,qkv=split,...")
      .value("OP=NAME,...")
      .was_values(former_names_in);
  c.opt("--recompute", r.recompute, recompute_form(), kRecomputeHelp);
  c.opt("--compile", r.compile, list_form(compile_form()), kCompileHelp)
      .offers(compile_mode_names())
      .value("NAME,...");
  c.opt("--graph", r.graph, kGraphChoices,
        "capture the step as a CUDA graph: on, off or auto (where the device can, but not in the baseline)");
  c.opt("--tune", asked->tune, "file of kiln tune, off, or auto: the one for this GPU in --out, if any")
      .value("FILE");
  c.opt("--split", r.split, "also milliseconds by class of op, against their roofline");
  c.opt("--kernels", asked->kernels, between(1, 1 << 16), "GPU: the split, and the N slowest kernels");
  c.opt("--threads", r.threads, thread_range(), "CPU threads").unset("all");
  c.opt("--export", asked->charts, one_of({"svg", "none"}), "charts, into OUT/step").not_in_config();
  add_page_options(c, asked->format);
  add_sweep_options(c, asked->sweep);
  c.run = [asked, &c, &common] { run_bench_step(*asked, c, common); };
}

}  // namespace kiln::cli
