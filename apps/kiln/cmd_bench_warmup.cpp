// kiln bench warmup: why the first steps of a program are slow.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <memory>

#include "base/error.h"
#include "kiln/bench_commands.h"
#include "kiln/bench_options.h"
#include "kiln/console/progress.h"
#include "kiln/sweep_options.h"
#include "ops/renamed.h"
#include "rows/result_log.h"
#include "studies/warmup/render.h"
#include "train/presets.h"
#include "train/run/tuned.h"

namespace kiln::cli {
namespace {

constexpr NamedValue<GraphChoice> kGraph[] = {{"off", GraphChoice::off}, {"on", GraphChoice::on}};

struct Asked {
  WarmupRequest request;
  ModelOptions model = {.sizes = {"small"}};
  std::vector<int> warmups = {0, 1, 2, 5};  // each in its own process
  std::string tune = "auto";
  PageFormat format = PageFormat::text;
  SweepOptions sweep;
};

GridAxis warmup_axis(const std::vector<int>& counts) {
  GridAxis axis{"warmup", {}};
  for (const int n : counts) axis.values.push_back(std::to_string(n));
  return axis;
}

void fill_request(Asked& asked, const CommonOptions& common) {
  WarmupRequest& w = asked.request;
  BenchStepRequest& r = w.step;
  r.begun = std::chrono::steady_clock::now();
  r.sizes = {model_of(asked.model)};
  r.warmups = asked.warmups.front();
  r.seed = common.seed;
  r.folder = common.out;
  // The first that asks for a GPU starts it, and pays for it.
  const auto begun = std::chrono::steady_clock::now();
  r.device = device_here(common);
  w.context_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  check_bench_step(r);
}

void run_bench_warmup(Asked& asked, const Command& command, const CommonOptions& common) {
  const PageFormat format = page_format(command, asked.format, common);
  if (asked.warmups.size() > 1 || asked.sweep.asked())
    return run_bench_sweep(asked.sweep, swept(command, common), common, format, {},
                           {warmup_axis(asked.warmups)});
  fill_request(asked, common);
  if (asked.sweep.dry_run) return;
  BenchStepRequest& step = asked.request.step;
  step.tuning = find_tuning(asked.tune, common.out, tune_place(step.device),
                            [](const std::string& line) { fmt::print(stderr, "{}\n", line); });
  prepare_results(common.out);
  WarmupReport report;
  {
    const BenchProgress progress;
    asked.request.progress = [&](const std::string& text) { progress(text); };
    report = bench_warmup(asked.request);
  }
  print_page(warmup_page(report, common.wide), format, common.wide);
  append_results(common.out, warmup_result_lines(report));
  if (report.row.timed()) return;
  throw Error(fmt::format("nothing could be timed: {}: {}", report.row.size.name, report.row.reason),
              "take a smaller --size, --batch or --ctx");
}

}  // namespace

void add_bench_warmup(Command& bench, const CommonOptions& common) {
  auto asked = std::make_shared<Asked>();
  BenchStepRequest& r = asked->request.step;
  Command& c = bench.sub("warmup", "why first steps are slow: every step's time, from a cold start",
                         "kiln bench warmup --size small --batch 4 --ctx 512 --warmup 0,1,2,5");
  c.note = "Each number of warm-ups runs in its own process.";
  add_model_options(c.options, asked->model, /*several=*/false);
  // One of everything: lists are a sweep's.
  c.opt("--ctx,--context", r.contexts.front(), between(1, 1 << 24), "sequence length");
  c.opt("--batch", r.batch, between(1, 1 << 20), "micro-batch size");
  c.opt("--grad-accum", r.micro_steps, between(1, 1 << 16), "gradient accumulation: micro-steps of a step");
  c.opt("--precision,--dtype", r.precisions.front(), precision_form(), "{}").offers(precision_names());
  c.opt("--preset", r.presets.front(), preset_names(), "{}");
  c.opt("--variant", r.variants, "op variants on top of the preset: attention=naive,...")
      .value("OP=NAME,...")
      .was_values(former_names_in);
  c.opt("--recompute", r.recompute, recompute_form(), kRecomputeHelp);
  c.opt("--graph", r.graph, kGraph, "capture the second step as a CUDA graph: on or off");
  c.opt("--warmup", asked->warmups, between(0, 1 << 20), "warm-up steps");
  c.opt("--steps", r.steps, between(2, 1 << 20), "timed steps");
  c.opt("--tune", asked->tune, "file of kiln tune, off, or auto: the one for this GPU in --out, if any")
      .value("FILE");
  c.opt("--threads", r.threads, thread_range(), "CPU threads").unset("all");
  add_page_options(c, asked->format);
  add_sweep_options(c, asked->sweep);
  c.run = [asked, &c, &common] { run_bench_warmup(*asked, c, common); };
}

}  // namespace kiln::cli
