// kiln profile: where a training step goes.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "base/error.h"
#include "kiln/bench_options.h"
#include "kiln/command.h"
#include "kiln/console/progress.h"
#include "kiln/console/stop_on_signals.h"
#include "kiln/sweep_options.h"
#include "ops/renamed.h"
#include "rows/result_log.h"
#include "studies/profile/render.h"
#include "train/presets.h"
#include "train/run/tuned.h"

namespace kiln::cli {
namespace {

constexpr NamedValue<StepPhase> kPhases[] = {
    {"forward", StepPhase::forward}, {"backward", StepPhase::backward}, {"optimizer", StepPhase::update}};

struct Asked {
  ProfileRequest request;
  ModelOptions model = {.sizes = {"tiny"}};
  std::optional<int64_t> batch;
  std::string source = "auto", tune = "auto";
  PageFormat format = PageFormat::text;
  SweepOptions sweep;
};

TextForm<int64_t> context_form() {
  return {[](const std::string& text) {
            return text == "max" ? kLargestContext : read_integer_option("--ctx", text, 1, 1 << 24);
          },
          [](const int64_t& n) { return n == kLargestContext ? "max" : std::to_string(n); }};
}

ProfileRequest request_of(const Asked& asked, const CommonOptions& common) {
  ProfileRequest r = asked.request;
  r.sizes = models_of(asked.model);
  if (asked.source != "auto") r.source = asked.source == "cupti" ? TraceSource::cupti : TraceSource::events;
  r.seed = common.seed;
  r.folder = common.out;
  r.device = device_here(common);
  // What answers in seconds on either.
  const bool gpu = r.device.type == DeviceType::cuda;
  r.batch = asked.batch.value_or(gpu ? 4 : 1);
  if (r.contexts.empty()) r.contexts = {gpu ? 512 : 128};
  check_profile(r);
  return r;
}

void report_failures(const ProfileReport& report) {
  bool any = false;
  for (const StepProfile& p : report.steps) {
    any = any || p.traced();
    if (p.status == RowStatus::failed) throw Error(fmt::format("{}: {}", p.name(), p.reason));
  }
  if (!any)
    throw Error(fmt::format("nothing could be traced: {}: {}", report.steps.front().name(),
                            report.steps.front().reason),
                "take a smaller --size, --batch or --ctx, or --recompute block");
}

void run_profile_command(const Asked& asked, const Command& command, const CommonOptions& common) {
  const PageFormat format = page_format(command, asked.format, common);
  if (asked.sweep.asked()) return run_bench_sweep(asked.sweep, swept(command, common), common, format);
  ProfileRequest request = request_of(asked, common);
  if (asked.sweep.dry_run) return;
  request.tuning = find_tuning(asked.tune, common.out, tune_place(request.device),
                               [](const std::string& line) { fmt::print(stderr, "{}\n", line); });
  prepare_results(common.out);  // is there a place for them? Better said now than after minutes
  ProfileReport report;
  {
    const StopOnSignals signals;
    const BenchProgress progress;
    request.trace.stop = [] { return stop_requested().load(); };
    report = run_profile(request, [&](const std::string& text) { progress(text); });
  }
  print_page(profile_page(report, common.wide), format, common.wide);
  append_results(common.out, profile_result_lines(report));
  report_failures(report);
}

}  // namespace

void add_profile(Command& c, const CommonOptions& common) {
  auto asked = std::make_shared<Asked>();
  ProfileRequest& r = asked->request;
  add_model_options(c.options, asked->model, /*several=*/true);
  c.opt("--ctx,--context", r.contexts, list_form(context_form()), "sequence length; max: as long as fits")
      .value("N,...")
      .unset("128; on a GPU 512");
  c.opt("--precision,--dtype", r.precisions, list_form(precision_form()), "{}")
      .offers(precision_names())
      .value("NAME,...");
  c.opt("--phase", r.phases, kPhases, "phases to list kernels of: {}").unset("all");
  c.opt("--preset", r.preset, preset_names(), "{}");
  c.opt("--variant", r.variants, "op variants on top of the preset: attention=composed,qkv=split,...")
      .value("OP=NAME,...")
      .was_values(former_names_in);
  c.opt("--batch", asked->batch, between(1, 1 << 20), "micro-batch size").unset("1; 4 on a GPU");
  c.opt("--grad-accum", r.micro_steps, between(1, 1 << 16), "gradient accumulation: micro-steps of a step")
      .was("--micro-steps");
  c.opt("--warmup", r.trace.warmups, between(0, 1 << 20), "warm-up steps");
  c.opt("--steps", r.trace.steps, between(1, 1 << 12), "traced steps; fewer where they are slow");
  c.opt("--kernels", r.kernels, between(1, 1 << 16), "number of kernels to list for each phase, the slowest");
  c.opt("--above", r.above, between(0.0, 100.0),
        "least share of forward, in per cent, of the non-matmul kernels to list");
  c.opt("--recompute", r.recompute, recompute_form(), kRecomputeHelp);
  c.opt("--compile", r.compile, compile_form(), kCompileHelp).offers(compile_mode_names());
  c.opt("--graph", r.graph, kGraphChoices,
        "capture the step as a CUDA graph: on, off or auto (where the device can, but not in the baseline)");
  c.opt("--source", asked->source, one_of({"auto", "cupti", "events"}),
        "source of GPU times: cupti, events, or auto: events where CUPTI is refused");
  c.opt("--backtrace", r.stacks, "also callers of each op, traced in a separate pass");
  c.opt("--tune", asked->tune, "file of kiln tune, off, or auto: the one for this GPU in --out, if any")
      .value("FILE");
  c.opt("--threads", r.threads, thread_range(), "CPU threads").unset("all");
  add_page_options(c, asked->format);
  add_sweep_options(c, asked->sweep);
  c.run = [asked, &c, &common] { run_profile_command(*asked, c, common); };
}

}  // namespace kiln::cli
