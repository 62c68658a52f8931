#include "kiln/cmd_bench_step.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>

#include "base/error.h"
#include "device/gpu_info.h"
#include "kiln/bench_charts.h"
#include "kiln/bench_options.h"
#include "studies/step/step.h"
#include "kiln/bench_step_pages.h"
#include "kiln/sweep_options.h"
#include "base/parse_number.h"
#include "device/require_gpu.h"
#include "kiln/console/stop_on_signals.h"
#include "kiln/study_tables.h"
#include "train/run/tuned.h"
#include "rows/result_log.h"

namespace kiln::cli {
namespace {

struct Typed {
  std::string sizes = "small", contexts = "512", dtypes = "bf16", presets = "optimized", modes = "full";
  std::string batch, vocab, micro_steps, warmups, steps, clip, variants,
      recompute = "none", graph = "auto", tune = "auto", threads = "0", format, kernels, exports = "none";
  bool split = false;
  std::shared_ptr<SweepOptions> sweep;
};

std::vector<std::string> read_presets(const std::string& text) {
  std::vector<std::string> presets;
  for (const std::string& word : split_at_commas(text)) {
    index_of("--preset", word, {"optimized", "baseline", "both"});
    for (const char* name : {"baseline", "optimized"}) {
      if ((word == "both" || word == name) &&
          std::find(presets.begin(), presets.end(), name) == presets.end())
        presets.emplace_back(name);
    }
  }
  return presets;
}

StepMode read_mode(const std::string& word) {
  const std::size_t at =
      index_of("--mode", word, {"forward", "forward-backward", "full", "forward_backward", "full_step"});
  return at == 0 ? StepMode::forward : at % 2 == 1 ? StepMode::forward_backward : StepMode::full;
}

BenchStepRequest read_request(const Typed& t, const CommonOptions& common) {
  BenchStepRequest r;
  r.begun = std::chrono::steady_clock::now();
  r.sizes = read_sizes(t.sizes, t.vocab);
  r.contexts = read_list<int64_t>(
      t.contexts, [](const std::string& word) { return parse_number<int64_t>("--ctx", word, 1, 1 << 24); });
  r.precisions = read_list<Precision>(
      t.dtypes, [](const std::string& word) { return parse_precision("--dtype", word); });
  r.presets = read_presets(t.presets);
  r.modes = read_list<StepMode>(t.modes, read_mode);
  r.variants = t.variants;
  r.recompute = parse_recompute("--recompute", t.recompute);
  const std::size_t graph = index_of("--graph", t.graph, {"auto", "on", "off"});
  r.graph = graph == 0 ? GraphChoice::automatic : graph == 1 ? GraphChoice::on : GraphChoice::off;
  read_number<int64_t>("--batch", t.batch, 1, 1 << 20, r.batch);
  read_number<int>("--micro-steps", t.micro_steps, 1, 1 << 16, r.micro_steps);
  read_number<double>("--clip", t.clip, 0.0, 1e9, r.clip);
  read_number<int>("--warmup", t.warmups, 0, 1 << 20, r.warmups);
  read_number<int>("--steps", t.steps, 1, 1 << 20, r.steps);
  read_number<int>("--kernels", t.kernels, 1, 1 << 16, r.kernels);
  r.split = t.split || r.kernels > 0;
  r.threads = parse_threads(t.threads);
  r.seed = common.seed;
  std::string why_no_gpu;
  const std::vector<GpuInfo> gpus = list_gpus(&why_no_gpu);
  require_gpu(common.device, gpus, why_no_gpu);
  r.device = Device::parse(common.device);
  check_bench_step(r);
  return r;
}

void run_bench_step(const Typed& typed, const CLI::App& app, const CommonOptions& common) {
  const PageFormat format = read_format(typed.format, common.json);
  const bool charts = read_chart_export(typed.exports);
  if (typed.sweep->asked()) return run_bench_sweep(*typed.sweep, app, common, format);
  BenchStepRequest request = read_request(typed, common);
  request.tuning = find_tuning(typed.tune, common.out, tune_place(request.device),
                               [](const std::string& line) { fmt::print(stderr, "{}\n", line); });
  if (typed.sweep->dry_run) return;
  prepare_results(common.out);
  BenchStepReport report;
  {
    const StopOnSignals signals;
    const BenchProgress progress;
    request.stop = [] { return stop_requested().load(); };
    report = bench_step(request, [&](const std::string& text) { progress(text); });
  }
  std::fputs(step_page(report, format).c_str(), stdout);
  const std::vector<std::string> lines = step_result_lines(report);
  append_results(common.out, lines);
  if (charts) write_step_charts(common.out, rows_of(lines));
  for (const StepRow& row : report.rows) {
    if (row.status == StepRow::Status::failed)
      throw Error(fmt::format("{} ({}): {}", row.size.name, row.variant_set(), row.reason));
  }
  if (report.stopped) return;
  if (!report.any_timed())
    throw Error(fmt::format("nothing could be timed: {}: {}", report.rows.front().size.name,
                            report.rows.front().reason),
                "take a smaller --size, --batch or --ctx, --dtype bf16, or --recompute block");
}

}  // namespace

std::function<bool()> add_bench_step(CLI::App& app, const CommonOptions& common) {
  auto t = std::make_shared<Typed>();
  CLI::App* step = app.add_subcommand("step", "The whole training step of models known by name, timed");
  step->fallthrough();  // --json and its like belong to every command
  step->footer(
      "Lists give a row for each combination. It also takes --json, --seed, --device and --out, as every "
      "command does.\n\n"
      "Example:\n  kiln bench step --size small,medium --batch 4 --ctx 512 --dtype bf16 --preset both "
      "--split");
  step->add_option("--size", t->sizes, "Models by the names of kiln sizes (default small)")
      ->type_name("NAME,...");
  step->add_option("--ctx,--context", t->contexts, "Tokens of a sequence (default 512)")->type_name("N,...");
  step->add_option("--dtype,--precision", t->dtypes, "bf16 (default), fp32, autocast, pure-bf16, fp16")
      ->type_name("NAME,...");
  step->add_option("--preset", t->presets, "optimized (default), baseline, or both")->type_name("NAME,...");
  step->add_option("--mode", t->modes, "forward, forward-backward, or full: with the update (default)")
      ->type_name("NAME,...");
  step->add_option("--batch", t->batch, "Sequences of a micro-step (default 4)")->type_name("N");
  step->add_option("--vocab", t->vocab, "Tokens of the vocabulary (default as the size has it)")
      ->type_name("N");
  step->add_option("--micro-steps", t->micro_steps, "Of a step (default 1)")->type_name("N");
  step->add_option("--warmup", t->warmups, "Steps before the timed ones (default 5)")->type_name("N");
  step->add_option("--steps", t->steps, "Timed steps (default 10)")->type_name("N");
  step->add_option("--clip", t->clip, "Largest gradient norm (default none)")->type_name("X");
  step->add_option("--variant", t->variants, "On top of the preset: attention=naive,qkv=split,...")
      ->type_name("OP=NAME,...");
  step->add_option("--recompute", t->recompute, "none (default), block, every:k or nested")
      ->type_name("NAME");
  step->add_option("--graph", t->graph,
                   "on, off or auto (default): where the device can, but not in the baseline")
      ->type_name("NAME");
  step->add_option("--tune", t->tune,
                   "A file of kiln tune, off, or auto (default): the one for this GPU in --out, if any")
      ->type_name("FILE");
  step->add_flag("--split", t->split, "Also where the milliseconds go, by class of op, beside their floor");
  step->add_option("--kernels", t->kernels, "On a GPU the split, and the N kernels that take most of it")
      ->type_name("N");
  step->add_option("--threads", t->threads, "Of the CPU (default all)")->type_name("N");
  step->add_option("--export", t->exports, "svg or none (default): charts of the rows, into OUT/step")
      ->type_name("NAME");
  step->add_option("--format", t->format, kFormatHelp)->type_name("NAME");
  t->sweep = add_sweep_options(step);
  return [t, step, &common] {
    if (step->parsed()) run_bench_step(*t, *step, common);
    return step->parsed();
  };
}

}  // namespace kiln::cli
