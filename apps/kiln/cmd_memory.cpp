// kiln memory: what holds the memory of a step, and when.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "device/gpu_info.h"
#include "kiln/bench_charts.h"
#include "kiln/bench_options.h"
#include "kiln/cmd.h"
#include "kiln/memory_pages.h"
#include "base/parse_number.h"
#include "device/require_gpu.h"
#include "rows/result_log.h"

namespace kiln::cli {
namespace {

struct Typed {
  std::string sizes = "tiny", contexts, dtypes = "fp32", phases, preset = "optimized", variants,
              recompute = "none";
  std::string batch, vocab, layers, micro_steps, detail, events, exports = "svg,html,pickle",
                                                                 measure = "auto", threads = "0";
  std::string attention, ks, steps;
};

StepMode read_phase(const std::string& word) {
  const std::size_t at =
      index_of("--phase", word, {"forward", "forward-backward", "full", "forward_backward", "full_step"});
  return at == 0 ? StepMode::forward : at % 2 == 1 ? StepMode::forward_backward : StepMode::full;
}

std::vector<std::string> read_exports(const std::string& text) {
  if (text == "none") return {};
  if (text == "all") return {"svg", "html", "pickle", "json"};
  return read_list<std::string>(text, [](const std::string& word) {
    index_of("--export", word, {"svg", "html", "pickle", "json", "all", "none"});
    return word;
  });
}

MemoryRequest read_request(const Typed& t, const CommonOptions& common, const char* contexts,
                           const char* phases) {
  MemoryRequest r;
  r.sizes = read_sizes(t.sizes, t.vocab);
  for (ModelSize& size : r.sizes) read_number<int64_t>("--layers", t.layers, 1, 1 << 12, size.layers);
  r.contexts = read_doubling("--ctx", t.contexts.empty() ? contexts : t.contexts, 1 << 24);
  r.precisions = read_list<Precision>(
      t.dtypes, [](const std::string& word) { return parse_precision("--dtype", word); });
  r.modes = read_list<StepMode>(t.phases.empty() ? phases : t.phases, read_phase);
  index_of("--preset", t.preset, {"optimized", "baseline"});
  r.preset = t.preset;
  r.variants = t.variants;
  r.recompute = parse_recompute("--recompute", t.recompute);
  read_number<int64_t>("--batch", t.batch, 1, 1 << 20, r.batch);
  read_number<int>("--micro-steps", t.micro_steps, 1, 1 << 16, r.micro_steps);
  read_number<int>("--steps", t.steps, 1, 100'000, r.steps);
  read_number<double>("--detail", t.detail, 0.001, 100, r.detail);
  read_number<std::size_t>("--events", t.events, 1000, 100'000'000, r.most_events);
  r.exports = read_exports(t.exports);
  r.folder = (std::filesystem::path(common.out) / "memory").string();
  r.measure = static_cast<MeasureChoice>(index_of("--measure", t.measure, {"auto", "always", "never"}));
  r.threads = parse_threads(t.threads);
  r.seed = common.seed;
  std::string why_no_gpu;
  const std::vector<GpuInfo> gpus = list_gpus(&why_no_gpu);
  require_gpu(common.device, gpus, why_no_gpu);
  r.device = Device::parse(common.device);
  StepSpec probe;
  (void)memory_rank(r, probe);  // are its variants known?
  return r;
}

// One model, one precision, one phase: what the two sweeps take.
StepSpec only_spec(const MemoryRequest& r) {
  const auto one = [](const char* option, std::size_t n) {
    if (n != 1)
      throw Error(fmt::format("{} has {} values; this study takes one", option, n), {}, ErrorKind::usage);
  };
  one("--size", r.sizes.size());
  one("--dtype", r.precisions.size());
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

void run_memory(const Typed& t, const CommonOptions& common) {
  const MemoryRequest request = read_request(t, common, "512", "forward,full");
  append_results(common.out, {});  // is there a place for them? Better said now than after minutes
  MemoryReport report;
  {
    const BenchProgress progress;
    report = memory_report(request, [&](const std::string& text) { progress(text); });
  }
  std::fputs((common.json ? memory_json(report) : memory_text(report)).c_str(), stdout);
  append_results(common.out, memory_result_lines(report));
}

void run_scaling(const Typed& t, const CommonOptions& common) {
  const MemoryRequest request = read_request(t, common, "128..4096", "full");
  ScalingReport report;
  report.size = request.sizes.front().name;
  StepSpec spec = only_spec(request);
  spec.model.recompute = request.recompute;
  ScalingRequest& q = report.request;
  q.rank = memory_rank(request, spec);
  q.spec = spec;
  q.contexts = request.contexts;
  std::vector<std::string_view> names;
  const std::vector<OpListing> ops = list_ops();
  for (const VariantListing& v : find_op(ops, "attention").variants) {
    if (v.device == request.device.target) names.push_back(v.name);
  }
  const bool true_fp32 = spec.precision == Precision::fp32 && request.device.target == DeviceType::cuda;
  const std::string usual = true_fp32 ? "naive,flash_fp32" : "naive,flash";
  q.attention =
      read_list<std::string>(t.attention.empty() ? usual : t.attention, [&](const std::string& word) {
        index_of("--attention", word, names);
        return word;
      });
  q.measure = [&](const StepSpec&, const MemoryStats& predicted, double flops) {
    return why_not_run(request, predicted, flops, 2).empty();
  };
  report.series = memory_scaling(q);
  if (std::find(request.exports.begin(), request.exports.end(), "svg") != request.exports.end())
    report.files = write_pictures(common.out, "memory", scaling_charts(report));
  std::fputs((common.json ? scaling_json(report) : scaling_text(report)).c_str(), stdout);
}

void run_sweep(const Typed& t, const CommonOptions& common) {
  const MemoryRequest request = read_request(t, common, "512", "full");
  RecomputeReport report;
  report.size = request.sizes.front().name;
  report.device = request.device.str();
  SweepRequest q;
  StepSpec spec = only_spec(request);
  if (spec.mode == StepMode::forward)
    throw Error("--phase is 'forward'; recomputation happens in backward", "take full or forward-backward",
                ErrorKind::usage);
  q.rank = memory_rank(request, spec);
  q.spec = report.spec = spec;
  q.ks = t.ks.empty() ? read_doubling("--blocks", fmt::format("1..{}", spec.model.layers), 1 << 12)
                      : read_doubling("--blocks", t.ks, 1 << 12);
  for (const int64_t k : q.ks) {
    if (k > spec.model.layers)
      throw Error(fmt::format("--blocks has {}, and {} has {} blocks", k, report.size, spec.model.layers), {},
                  ErrorKind::usage);
  }
  if (!t.steps.empty()) q.steps = request.steps;
  q.measure = [&](const StepSpec&, const MemoryStats& predicted, double flops) {
    const std::string why = why_not_run(request, predicted, flops, q.steps + 1);
    if (!why.empty()) report.not_measured = why;
    return why.empty();
  };
  report.sweep = recompute_sweep(q);
  std::fputs((common.json ? sweep_json(report) : sweep_text(report)).c_str(), stdout);
}

void add_model_options(CLI::App& app, Typed& t, const char* contexts, const char* phases) {
  app.add_option("--size", t.sizes, "Models by the names of kiln sizes (default tiny)")
      ->type_name("NAME,...");
  app.add_option("--ctx,--context", t.contexts,
                 fmt::format("Tokens of a sequence, 128,512 or 128..4096 (default {})", contexts))
      ->type_name("N,...");
  app.add_option("--dtype,--precision", t.dtypes, "fp32 (default), bf16, autocast, pure-bf16, fp16")
      ->type_name("NAME,...");
  app.add_option("--phase,--mode", t.phases,
                 fmt::format("forward, forward-backward or full: with the update (default {})", phases))
      ->type_name("NAME,...");
  app.add_option("--batch", t.batch, "Sequences of a micro-step (default 4)")->type_name("N");
  app.add_option("--micro-steps", t.micro_steps, "Of a step (default 1)")->type_name("N");
  app.add_option("--vocab", t.vocab, "Tokens of the vocabulary (default as the size has it)")->type_name("N");
  app.add_option("--layers", t.layers, "Blocks (default as the size has them)")->type_name("N");
  app.add_option("--preset", t.preset, "optimized (default) or baseline")->type_name("NAME");
  app.add_option("--variant", t.variants, "On top of the preset: attention=naive,...")
      ->type_name("OP=NAME,...");
  app.add_option(
         "--measure", t.measure,
         "auto (default): where it fits and takes the CPU no longer than half a minute; always, never")
      ->type_name("NAME");
  app.add_option("--threads", t.threads, "Of the CPU (default all)")->type_name("N");
}

CLI::App* add_study(CLI::App& app, const char* name, const char* summary, const char* example) {
  CLI::App* study = app.add_subcommand(name, summary);
  study->fallthrough();  // --json, --size and their like belong to the command
  study->footer(fmt::format("It also takes the options of kiln memory.\n\nExample:\n  {}", example));
  return study;
}

}  // namespace

CommandBody add_memory(CLI::App& app, const CommonOptions& common) {
  auto t = std::make_shared<Typed>();
  app.require_subcommand(0, 1);
  add_model_options(app, *t, "512; scaling: 128..4096", "forward,full; the studies: full");
  app.add_option("--recompute", t->recompute, "none (default), block, every:k or nested")->type_name("NAME");
  app.add_option("--detail", t->detail, "Of all allocations, the largest so many per cent (default 10)")
      ->type_name("X");
  app.add_option("--events", t->events, "Allocations and frees to keep, the last ones (default 1000000)")
      ->type_name("N");
  app.add_option("--steps", t->steps, "Steps to trace (default 2); recompute-sweep: to time (default 3)")
      ->type_name("N");
  app.add_option("--export", t->exports,
                 "svg, html, pickle, json, all or none (default svg,html,pickle); scaling: svg")
      ->type_name("NAME,...");
  CLI::App* scaling =
      add_study(app, "scaling", "Peaks over the length of a sequence, and the power they grow with",
                "kiln memory scaling --size small --ctx 128..8192 --device meta");
  scaling
      ->add_option("--attention", t->attention,
                   "Variants to compare (default naive,flash; in fp32 on a GPU naive,flash_fp32)")
      ->type_name("NAME,...");
  CLI::App* sweep = add_study(app, "recompute-sweep", "How many blocks to run again at once",
                              "kiln memory recompute-sweep --size xl26 --batch 4 --ctx 2048 --device meta");
  sweep->add_option("--blocks", t->ks, "Block sizes, 1,2,4 or 1..32 (default 1.. all, doubling)")
      ->type_name("N,...");
  return [t, scaling, sweep, &common] {
    if (scaling->parsed()) return run_scaling(*t, common);
    if (sweep->parsed()) return run_sweep(*t, common);
    run_memory(*t, common);
  };
}

}  // namespace kiln::cli
