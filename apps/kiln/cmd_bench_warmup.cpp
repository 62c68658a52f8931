#include "kiln/cmd_bench_warmup.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <memory>

#include "base/error.h"
#include "device/gpu_info.h"
#include "kiln/bench_options.h"
#include "studies/step/step.h"
#include "kiln/sweep_options.h"
#include "studies/warmup/warmup.h"
#include "base/parse_number.h"
#include "device/require_gpu.h"
#include "train/run/tuned.h"
#include "rows/result_log.h"

namespace kiln::cli {
namespace {

struct Typed {
  std::string size = "small", context = "512", dtype = "bf16", preset = "optimized", warmups = "0,1,2,5",
              steps, batch, vocab, variants, recompute = "none", graph = "off", tune = "auto", threads = "0",
              format;
  std::shared_ptr<SweepOptions> sweep;
};

// One of everything: lists are a sweep's.
WarmupRequest read_request(const Typed& t, const CommonOptions& common) {
  WarmupRequest w;
  BenchStepRequest& r = w.step;
  const auto begun = std::chrono::steady_clock::now();
  r.sizes = read_sizes(t.size, t.vocab);
  if (r.sizes.size() > 1)
    throw Error(fmt::format("--size is '{}'; expected one", t.size), "sweep several with --grid size=...",
                ErrorKind::usage);
  r.contexts = {parse_number<int64_t>("--ctx", t.context, 1, 1 << 24)};
  r.precisions = {parse_precision("--dtype", t.dtype)};
  index_of("--preset", t.preset, {"optimized", "baseline"});
  r.presets = {t.preset};
  r.modes = {StepMode::full};
  r.variants = t.variants;
  r.recompute = parse_recompute("--recompute", t.recompute);
  r.graph = index_of("--graph", t.graph, {"off", "on"}) == 0 ? GraphChoice::off : GraphChoice::on;
  r.batch = 4;
  r.steps = 10;
  read_number<int64_t>("--batch", t.batch, 1, 1 << 20, r.batch);
  read_number<int>("--steps", t.steps, 2, 1 << 20, r.steps);
  r.warmups = parse_number<int>("--warmup", t.warmups, 0, 1 << 20);
  r.threads = parse_threads(t.threads);
  r.seed = common.seed;
  // The first that asks for a GPU starts it, and pays for it.
  const auto asked = std::chrono::steady_clock::now();
  std::string why_no_gpu;
  const std::vector<GpuInfo> gpus = list_gpus(&why_no_gpu);
  require_gpu(common.device, gpus, why_no_gpu);
  r.device = Device::parse(common.device);
  w.context_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - asked).count();
  r.begun = begun;
  check_bench_step(r);
  return w;
}

void run_bench_warmup(const Typed& t, const CLI::App& app, const CommonOptions& common) {
  const PageFormat format = read_format(t.format, common.json);
  const std::vector<std::string> counts = split_at_commas(t.warmups);
  if (counts.size() > 1 || t.sweep->asked()) {
    for (const std::string& word : counts) (void)parse_number<int>("--warmup", word, 0, 1 << 20);
    return run_bench_sweep(*t.sweep, app, common, format, {}, {{"warmup", counts}});
  }
  WarmupRequest request = read_request(t, common);
  if (t.sweep->dry_run) return;
  request.step.tuning = find_tuning(t.tune, common.out, tune_place(request.step.device),
                                    [](const std::string& line) { fmt::print(stderr, "{}\n", line); });
  prepare_results(common.out);
  const WarmupReport report = bench_warmup(request);
  std::fputs(warmup_page(report, format).c_str(), stdout);
  append_results(common.out, warmup_result_lines(report));
  if (report.row.timed()) return;
  throw Error(fmt::format("nothing could be timed: {}: {}", report.row.size.name, report.row.reason),
              "take a smaller --size, --batch or --ctx");
}

}  // namespace

std::function<bool()> add_bench_warmup(CLI::App& app, const CommonOptions& common) {
  auto t = std::make_shared<Typed>();
  CLI::App* study =
      app.add_subcommand("warmup", "Why first steps are slow: every step's time, from a cold start");
  study->fallthrough();  // --json and its like belong to every command
  study->footer(
      "Each number of warm-ups runs in a program of its own. It also takes --json, --seed, --device and "
      "--out, as "
      "every command does.\n\nExample:\n  kiln bench warmup --size small --batch 4 --ctx 512 --warmup "
      "0,1,2,5");
  study->add_option("--size", t->size, "A model by a name of kiln sizes (default small)")->type_name("NAME");
  study->add_option("--ctx,--context", t->context, "Tokens of a sequence (default 512)")->type_name("N");
  study->add_option("--batch", t->batch, "Sequences of a step (default 4)")->type_name("N");
  study->add_option("--dtype,--precision", t->dtype, "bf16 (default), fp32, autocast, pure-bf16, fp16")
      ->type_name("NAME");
  study->add_option("--preset", t->preset, "optimized (default) or baseline")->type_name("NAME");
  study->add_option("--variant", t->variants, "On top of the preset: attention=naive,...")
      ->type_name("OP=NAME,...");
  study->add_option("--recompute", t->recompute, "none (default), block, every:k or nested")
      ->type_name("NAME");
  study->add_option("--graph", t->graph, "off (default) or on: the second step is captured")
      ->type_name("NAME");
  study->add_option("--vocab", t->vocab, "Tokens of the vocabulary (default as the size has it)")
      ->type_name("N");
  study->add_option("--warmup", t->warmups, "Steps before those that count (default 0,1,2,5)")
      ->type_name("N,...");
  study->add_option("--steps", t->steps, "Steps that count (default 10)")->type_name("N");
  study->add_option("--tune", t->tune, "A file of kiln tune, off, or auto (default)")->type_name("FILE");
  study->add_option("--threads", t->threads, "Of the CPU (default all)")->type_name("N");
  study->add_option("--format", t->format, kFormatHelp)->type_name("NAME");
  t->sweep = add_sweep_options(study);
  return [t, study, &common] {
    if (study->parsed()) run_bench_warmup(*t, *study, common);
    return study->parsed();
  };
}

}  // namespace kiln::cli
