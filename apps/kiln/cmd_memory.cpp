// kiln memory: what holds the memory of a step, and when.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "base/choice.h"
#include "kiln/bench_options.h"
#include "kiln/command.h"
#include "kiln/console/progress.h"
#include "kiln/console/stop_on_signals.h"
#include "kiln/sweep_options.h"
#include "ops/renamed.h"
#include "rows/result_log.h"
#include "studies/chart_export.h"
#include "studies/format.h"
#include "studies/memory/render.h"
#include "train/presets.h"

namespace kiln::cli {
namespace {

constexpr NamedValue<MeasureChoice> kMeasure[] = {
    {"auto", MeasureChoice::automatic}, {"always", MeasureChoice::always}, {"never", MeasureChoice::never}};

struct Asked {
  MemoryStudyRequest request;
  ModelOptions model = {.sizes = {"tiny"}};
  SweepOptions sweep;
  PageFormat format = PageFormat::text;
  std::string attention;
  std::vector<int64_t> blocks;
};

TextForm<std::vector<std::string>> exports_form() {
  const auto read = [](const std::string& text) -> std::vector<std::string> {
    if (text == "none") return {};
    if (text == "all") return {"svg", "html", "pickle", "json"};
    return read_list<std::string>(text, [](const std::string& word) {
      index_of("--export", word, {"svg", "html", "pickle", "json", "all", "none"});
      return word;
    });
  };
  return {read, [](const std::vector<std::string>& kinds) { return kinds.empty() ? "none" : joined(kinds); }};
}

MemoryStudyRequest request_of(const Asked& asked, const CommonOptions& common, std::vector<int64_t> contexts,
                              std::vector<StepMode> modes) {
  MemoryStudyRequest r = asked.request;
  r.sizes = models_of(asked.model);
  if (r.contexts.empty()) r.contexts = std::move(contexts);
  if (r.modes.empty()) r.modes = std::move(modes);
  r.folder = (std::filesystem::path(common.out) / "memory").string();
  r.seed = common.seed;
  r.device = device_here(common);
  StepSpec probe;
  (void)memory_rank(r, probe);  // are its variants known?
  return r;
}

void run_memory(const Asked& asked, const Command& command, const CommonOptions& common) {
  const PageFormat format = page_format(command, asked.format, common);
  if (asked.sweep.asked()) return run_bench_sweep(asked.sweep, swept(command, common), common, format);
  MemoryStudyRequest request = request_of(asked, common, {512}, {StepMode::forward, StepMode::full});
  if (asked.sweep.dry_run) return;
  append_results(common.out, {});  // is there a place for them? Better said now than after minutes
  MemoryReport report;
  {
    const StopOnSignals signals;
    const BenchProgress progress;
    request.stop = [] { return stop_requested().load(); };
    report = memory_report(request, [&](const std::string& text) { progress(text); });
  }
  print_page(memory_page(report, common.wide), format, common.wide);
  append_results(common.out, memory_result_lines(report));
}

// They are sweeps themselves.
void refuse_grid(const Asked& asked) {
  if (asked.sweep.asked())
    throw Error("--grid belongs to kiln memory itself, which makes rows of its cells",
                "kiln memory --grid ctx=128,256", ErrorKind::usage);
}

void run_scaling(const Asked& asked, const Command& command, const CommonOptions& common) {
  refuse_grid(asked);
  const PageFormat format = page_format(command, asked.format, common);
  const MemoryStudyRequest request =
      request_of(asked, common, {128, 256, 512, 1024, 2048, 4096}, {StepMode::full});
  ScalingReport report = scaling_report(request, asked.attention);
  const auto& exports = request.exports;
  if (std::find(exports.begin(), exports.end(), "svg") != exports.end())
    report.files = write_charts(common.out, "memory", scaling_charts(report));
  const StudyPage page = scaling_page(report);
  print_page(page, format, common.wide);
  append_results(common.out, {document_line(page.json)});
}

void run_recompute_sweep(const Asked& asked, const Command& command, const CommonOptions& common) {
  refuse_grid(asked);
  const PageFormat format = page_format(command, asked.format, common);
  const MemoryStudyRequest request = request_of(asked, common, {512}, {StepMode::full});
  const bool steps_given = !command.options.find("--steps")->given().empty();
  RecomputeReport report =
      recompute_report(request, asked.blocks, steps_given ? request.steps : RecomputeSweepRequest().steps);
  const auto& exports = request.exports;
  if (std::find(exports.begin(), exports.end(), "svg") != exports.end())
    report.files = write_charts(common.out, "memory", recompute_charts(report));
  const StudyPage page = recompute_page(report);
  print_page(page, format, common.wide);
  append_results(common.out, {document_line(page.json)});
}

void add_options(Command& c, Asked& asked) {
  MemoryStudyRequest& r = asked.request;
  add_model_options(c.options, asked.model, /*several=*/true);
  c.opt("--ctx,--context", r.contexts, doubling_form("--ctx", 1 << 24),
        "sequence length: 128,512 or 128..4096")
      .value("N,...")
      .unset("512; scaling: 128..4096");
  c.opt("--precision,--dtype", r.precisions, list_form(precision_form()), "{}")
      .offers(precision_names())
      .value("NAME,...");
  c.opt("--phase,--mode", r.modes, kStepModes, "forward, forward-backward, or full (with the update)")
      .unset("forward,full; the studies: full");
  c.opt("--batch", r.batch, between(1, 1 << 20), "micro-batch size");
  c.opt("--grad-accum", r.micro_steps, between(1, 1 << 16), "gradient accumulation: micro-steps of a step")
      .was("--micro-steps");
  c.opt("--preset", r.preset, preset_names(), "{}");
  c.opt("--variant", r.variants, "op variants on top of the preset: attention=naive,...")
      .value("OP=NAME,...")
      .was_values(former_names_in);
  c.opt("--recompute", r.recompute, recompute_form(), kRecomputeHelp);
  c.opt("--compile", r.compile, compile_form(), kCompileHelp).offers(compile_mode_names());
  c.opt("--measure", r.measure, kMeasure,
        "also run the step: always, never, or auto: where it fits and takes the CPU half a minute at most");
  c.opt("--steps", r.steps, between(1, 100'000), "steps to trace; recompute-sweep: timed steps")
      .unset(cat(r.steps, "; recompute-sweep: ", RecomputeSweepRequest().steps));
  c.opt("--detail", r.detail, between(0.001, 100.0),
        "share of all allocations to draw, the largest, in per cent");
  c.opt("--events", r.most_events, between(1000, 100'000'000), "most allocations and frees kept: the last N");
  c.opt("--export", r.exports, exports_form(), "svg, html, pickle, json, all or none; scaling: svg")
      .value("NAME,...")
      .not_in_config();
  c.opt("--threads", r.threads, thread_range(), "CPU threads").unset("all");
  add_page_options(c, asked.format);
  asked.sweep.meta_too = true;
  add_sweep_options(c, asked.sweep);
}

}  // namespace

void add_memory(Command& c, const CommonOptions& common) {
  auto asked = std::make_shared<Asked>();
  add_options(c, *asked);
  Command& scaling = c.sub("scaling", "peaks by sequence length, and the exponent of their growth",
                           "kiln memory scaling --size small --ctx 128..8192 --device meta");
  scaling.opt("--attention", asked->attention, "variants to compare")
      .value("NAME,...")
      .unset("naive,flash; in fp32 on a GPU naive,flash_fp32");
  Command& sweep = c.sub("recompute-sweep", "blocks recomputed as one span",
                         "kiln memory recompute-sweep --size xl26 --batch 4 --ctx 2048 --device meta");
  sweep.opt("--blocks", asked->blocks, doubling_form("--blocks", 1 << 12), "block sizes: 1,2,4 or 1..32")
      .value("N,...")
      .unset("1 to all, doubling");
  scaling.takes_parents_options = sweep.takes_parents_options = true;
  c.run = [asked, &c, &common] { run_memory(*asked, c, common); };
  scaling.run = [asked, &c, &common] { run_scaling(*asked, c, common); };
  sweep.run = [asked, &c, &common] { run_recompute_sweep(*asked, c, common); };
}

}  // namespace kiln::cli
