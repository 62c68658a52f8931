// kiln profile: where a training step goes.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "base/error.h"
#include "device/gpu_info.h"
#include "kiln/bench_options.h"
#include "kiln/cmd.h"
#include "base/parse_number.h"
#include "kiln/profile_pages.h"
#include "device/require_gpu.h"
#include "train/run/tuned.h"
#include "rows/result_log.h"

namespace kiln::cli {
namespace {

struct Typed {
  std::string sizes = "tiny", contexts, dtypes = "bf16", preset = "optimized",
              phases = "forward,backward,optimizer";
  std::string batch, vocab, micro_steps, warmups, steps, variants,
      recompute = "none", graph = "auto", tune = "auto", threads = "0", format, kernels, above,
      source = "auto";
  bool backtrace = false;
};

StepPhase read_phase(const std::string& word) {
  return static_cast<StepPhase>(index_of("--phase", word, {"forward", "backward", "optimizer"}));
}

ProfileRequest read_request(const Typed& t, const CommonOptions& common) {
  ProfileRequest r;
  r.sizes = read_sizes(t.sizes, t.vocab);
  r.precisions = read_list<Precision>(
      t.dtypes, [](const std::string& word) { return parse_precision("--dtype", word); });
  index_of("--preset", t.preset, {"optimized", "baseline"});
  r.preset = t.preset;
  r.variants = t.variants;
  r.phases = read_list<StepPhase>(t.phases, read_phase);
  r.recompute = parse_recompute("--recompute", t.recompute);
  const std::size_t graph = index_of("--graph", t.graph, {"auto", "on", "off"});
  r.graph = graph == 0 ? GraphChoice::automatic : graph == 1 ? GraphChoice::on : GraphChoice::off;
  const std::size_t source = index_of("--source", t.source, {"auto", "cupti", "events"});
  if (source > 0) r.source = source == 1 ? TraceSource::cupti : TraceSource::events;
  read_number<int>("--micro-steps", t.micro_steps, 1, 1 << 16, r.micro_steps);
  read_number<int>("--warmup", t.warmups, 0, 1 << 20, r.trace.warmups);
  read_number<int>("--steps", t.steps, 1, 1 << 12, r.trace.steps);
  read_number<int>("--kernels", t.kernels, 1, 1 << 16, r.kernels);
  double above = 100 * r.above;
  read_number<double>("--above", t.above, 0.0, 100.0, above);
  r.above = above / 100;
  r.stacks = t.backtrace;
  r.threads = parse_threads(t.threads);
  r.seed = common.seed;
  r.folder = common.out;
  std::string why_no_gpu;
  const std::vector<GpuInfo> gpus = list_gpus(&why_no_gpu);
  require_gpu(common.device, gpus, why_no_gpu);
  r.device = Device::parse(common.device);
  // What answers in seconds on either.
  const bool gpu = r.device.type == DeviceType::cuda;
  r.batch = gpu ? 4 : 1;
  read_number<int64_t>("--batch", t.batch, 1, 1 << 20, r.batch);
  r.contexts = read_list<int64_t>(
      t.contexts.empty() ? (gpu ? "512" : "128") : t.contexts, [](const std::string& word) {
        return word == "max" ? kLargestContext : parse_number<int64_t>("--ctx", word, 1, 1 << 24);
      });
  check_profile(r);
  return r;
}

void run(const Typed& typed, const CommonOptions& common) {
  const PageFormat format = read_format(typed.format, common.json);
  if (format == PageFormat::csv || format == PageFormat::latex)
    throw Error(fmt::format("--format is '{}', and a profile is several tables", typed.format),
                "use table, md or json", ErrorKind::usage);
  ProfileRequest request = read_request(typed, common);
  request.tuning = find_tuning(typed.tune, common.out, tune_place(request.device),
                               [](const std::string& line) { fmt::print(stderr, "{}\n", line); });
  prepare_results(common.out);  // is there a place for them? Better said now than after minutes
  ProfileReport report;
  {
    const BenchProgress progress;
    report = run_profile(request, [&](const std::string& text) { progress(text); });
  }
  const std::string page = format == PageFormat::json       ? profile_json(report)
                           : format == PageFormat::markdown ? profile_markdown(report)
                                                            : profile_text(report);
  std::fputs(page.c_str(), stdout);
  append_results(common.out, profile_result_lines(report));
  bool any = false;
  for (const StepProfile& p : report.steps) {
    any = any || p.traced();
    if (p.status == StepProfile::Status::failed) throw Error(fmt::format("{}: {}", p.name(), p.reason));
  }
  if (!any)
    throw Error(fmt::format("nothing could be traced: {}: {}", report.steps.front().name(),
                            report.steps.front().reason),
                "take a smaller --size, --batch or --ctx, or --recompute block");
}

}  // namespace

CommandBody add_profile(CLI::App& app, const CommonOptions& common) {
  auto t = std::make_shared<Typed>();
  app.add_option("--size", t->sizes, "Models by the names of kiln sizes (default tiny)")
      ->type_name("NAME,...");
  app.add_option("--ctx,--context", t->contexts,
                 "Tokens of a sequence (default 128; on a GPU 512); max: as many as fit")
      ->type_name("N,...");
  app.add_option("--dtype,--precision", t->dtypes, "bf16 (default), fp32, autocast, pure-bf16, fp16")
      ->type_name("NAME,...");
  app.add_option("--phase", t->phases, "Whose kernels are listed: forward, backward, optimizer (default all)")
      ->type_name("NAME,...");
  app.add_option("--preset", t->preset, "optimized (default) or baseline")->type_name("NAME");
  app.add_option("--variant", t->variants, "On top of the preset: attention=composed,qkv=split,...")
      ->type_name("OP=NAME,...");
  app.add_option("--batch", t->batch, "Sequences of a micro-step (default 1; on a GPU 4)")->type_name("N");
  app.add_option("--vocab", t->vocab, "Tokens of the vocabulary (default as the size has it)")
      ->type_name("N");
  app.add_option("--micro-steps", t->micro_steps, "Of a step (default 1)")->type_name("N");
  app.add_option("--warmup", t->warmups, "Steps before the traced ones (default 2)")->type_name("N");
  app.add_option("--steps", t->steps, "Traced steps (default 5; slow ones fewer)")->type_name("N");
  app.add_option("--kernels", t->kernels, "To list for each phase, the slowest (default 8)")->type_name("N");
  app.add_option("--above", t->above,
                 "Percent of forward from which a kernel that is no product is named (default 1)")
      ->type_name("X");
  app.add_option("--recompute", t->recompute, "none (default), block, every:k or nested")->type_name("NAME");
  app.add_option("--graph", t->graph,
                 "on, off or auto (default): where the device can, but not in the baseline")
      ->type_name("NAME");
  app.add_option("--source", t->source,
                 "Of a GPU's times: cupti, events, or auto (default): events where CUPTI is refused")
      ->type_name("NAME");
  app.add_flag("--backtrace", t->backtrace, "Also where each op is called from, in a pass of its own");
  app.add_option("--tune", t->tune,
                 "A file of kiln tune, off, or auto (default): the one for this GPU in --out, if any")
      ->type_name("FILE");
  app.add_option("--threads", t->threads, "Of the CPU (default all)")->type_name("N");
  app.add_option("--format", t->format, "table, md or json (default table)")->type_name("NAME");
  return [t, &common] { run(*t, common); };
}

}  // namespace kiln::cli
