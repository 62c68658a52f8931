// `kiln ablate`: the optimizations one by one and combined, behind a quality gate (docs/ablation.md).
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/error.h"
#include "kiln/bench_options.h"
#include "kiln/command.h"
#include "kiln/console/progress.h"
#include "kiln/console/stop_on_signals.h"
#include "kiln/sweep_options.h"
#include "rows/result_log.h"
#include "rows/row_values.h"
#include "studies/ablation/ablation.h"
#include "studies/ablation/quality_curves.h"
#include "studies/ablation/render.h"
#include "studies/chart_export.h"

namespace kiln::cli {
namespace {

constexpr NamedValue<Precision> kBases[] = {{"fp32", Precision::fp32}, {"bf16", Precision::bf16}};

struct Asked {
  AblateRequest request;
  ModelOptions model = {.sizes = {"small"}};
  bool quick = false;
  PageFormat format = PageFormat::text;
  SweepOptions sweep;
};

std::vector<std::string_view> all_switches() {
  std::vector<std::string_view> names;
  for (const AblationSwitch& s : ablation_switches()) names.push_back(s.name);
  return names;
}

// In the order they are added up, whatever the order typed.
TextForm<std::vector<std::string_view>> switches_form() {
  return {[](const std::string& text) {
            std::vector<std::string_view> asked, ordered;
            for (const std::string& word : split_list(text))
              asked.push_back(find_ablation_switch("--only", word).name);
            for (const std::string_view name : all_switches())
              if (std::find(asked.begin(), asked.end(), name) != asked.end()) ordered.push_back(name);
            return ordered;
          },
          [](const std::vector<std::string_view>& names) {
            return joined(std::vector<std::string>(names.begin(), names.end()));
          }};
}

// The smallest model and context whose step is more than overhead (docs/ablation.md), where nothing else was
// requested.
void make_quick(Asked& asked, const Options& options) {
  const auto quick = [&](const char* name, auto& field, auto value) {
    if (options.find(name)->given().empty()) field = value;
  };
  AblateRequest& r = asked.request;
  if (asked.model.model.empty()) quick("--size", asked.model.sizes, std::vector<std::string>{"tiny"});
  quick("--batch", r.batch, 1);
  quick("--ctx", r.context, 128);
  quick("--warmup", r.warmups, 1);
  quick("--steps", r.steps, 8);
  quick("--gate-steps", r.gate_steps, 4);
}

void report_failures(const AblateReport& report) {
  for (const Json& row : report.rows) {
    if (text_at(row, "gate") == "failed")
      throw Error(fmt::format("{} {}: the gate failed: {}", text_at(row, "group"), text_at(row, "switch"),
                              text_at(row, "reason")),
                  "the other rows are valid");
  }
}

void run_ablate(Asked& asked, const Command& command, const CommonOptions& common) {
  const PageFormat format = page_format(command, asked.format, common);
  if (asked.sweep.asked()) {
    asked.sweep.fresh = asked.request.fresh;
    return run_bench_sweep(asked.sweep, swept(command, common), common, format);
  }
  if (asked.quick) make_quick(asked, command.options);
  AblateRequest& request = asked.request;
  // Of a baseline that has it already it is no switch.
  if (request.base != Precision::fp32 && command.options.find("--only")->given().empty())
    std::erase(request.only, "bf16");
  request.size = model_of(asked.model);
  request.seed = common.seed;
  request.out = common.out;
  request.device = device_here(common);
  check_ablate(request);
  if (asked.sweep.dry_run) return;
  prepare_results(common.out);
  const StoredResults stored = read_results(common.out);
  AblateReport report;
  {
    const StopOnSignals signals;
    const BenchProgress progress;
    request.stop = [] { return stop_requested().load(); };
    report = ablate(
        request, stored.rows, [&](const std::string& text) { progress(text); },
        [&](const std::string& line) { append_results(common.out, {line}); });
  }
  print_page(ablate_page(report, common.wide), format, common.wide);
  if (format == PageFormat::csv) {
    for (const std::string& line : report.notes) fmt::print(stderr, "{}\n", line);
  }
  report_failures(report);
}

struct QualityAsked {
  QualityRequest request;
  ModelOptions model = {.sizes = {"nano"}};
  PageFormat format = PageFormat::text;
};

void run_quality(QualityAsked& asked, const Command& command, const CommonOptions& common) {
  const PageFormat format = page_format(command, asked.format, common);
  QualityRequest& request = asked.request;
  request.size = model_of(asked.model);
  request.seed = common.seed;
  request.device = device_here(common);
  if (request.device.is_meta())
    throw Error("meta runs no kernels, so nothing is learned there", "use --device cpu or cuda",
                ErrorKind::usage);
  prepare_results(common.out);
  QualityReport report;
  {
    const StopOnSignals signals;
    const BenchProgress progress;
    request.stop = [] { return stop_requested().load(); };
    report = quality_curves(request, [&](const std::string& text) { progress(text); });
  }
  print_page(quality_page(report), format, common.wide);
  append_results(common.out, {quality_result_line(report)});
  for (const std::string& path :
       write_charts(common.out, "quality", std::vector<NamedChart>{{"curves", quality_svg(report)}}))
    fmt::print(stderr, "wrote {}\n", path);
  if (!report.passed())
    throw Error(fmt::format("the losses differ by {:.2f} % at step {}; {:.2f} % are allowed",
                            100 * report.worst(), report.worst_step(), 100 * request.tolerance));
}

void add_quality(Command& c, const CommonOptions& common) {
  auto asked = std::make_shared<QualityAsked>();
  QualityRequest& r = asked->request;
  r.only = all_switches();
  add_model_options(c.options, asked->model, /*several=*/false);
  c.opt("--batch", r.batch, between(1, 1 << 20), "micro-batch size");
  c.opt("--ctx,--context", r.context, between(1, 1 << 24), "sequence length");
  c.opt("--grad-accum", r.micro_steps, between(1, 1 << 16), "gradient accumulation: micro-steps of a step");
  c.opt("--steps", r.steps, between(2, 1 << 24), "training steps of both");
  c.opt("--only", r.only, switches_form(), "switches of the optimized step").value("NAME,...").unset("all");
  c.opt("--tolerance", r.tolerance, between(0.0, 1e3), "largest difference of the losses, as a share");
  c.opt("--threads", r.threads, thread_range(), "CPU threads").unset("all");
  add_page_options(c, asked->format);
  c.run = [asked, &c, &common] { run_quality(*asked, c, common); };
}

}  // namespace

void add_ablate(Command& c, const CommonOptions& common) {
  auto asked = std::make_shared<Asked>();
  AblateRequest& r = asked->request;
  r.only = all_switches();
  c.note = "Switches, in the order they are added:\n";
  for (const AblationSwitch& s : ablation_switches()) c.note += fmt::format("  {:<16} {}\n", s.name, s.what);
  c.note +=
      "\nThe precision is one of them: that of --base until bf16 is on.\n"
      "--quick is --size tiny --batch 1 --ctx 128 --warmup 1 --steps 8 --gate-steps 4.";
  c.opt("--quick", asked->quick, "small model and sizes: two minutes at most on two cores");
  add_model_options(c.options, asked->model, /*several=*/false);
  c.opt("--batch", r.batch, between(1, 1 << 20), "micro-batch size");
  c.opt("--ctx,--context", r.context, between(1, 1 << 24), "sequence length");
  c.opt("--grad-accum", r.micro_steps, between(1, 1 << 16), "gradient accumulation: micro-steps of a step");
  c.opt("--base", r.base, kBases, "precision of the baseline");
  c.opt("--only", r.only, switches_form(), "switches to turn on").value("NAME,...").unset("all");
  c.opt("--warmup", r.warmups, between(0, 1 << 20), "warm-up steps");
  c.opt("--steps", r.steps, between(1, 1 << 20), "timed steps of a row");
  c.opt("--gate-steps", r.gate_steps, between(1, 1 << 20), "training steps before the gate compares losses");
  c.opt("--tolerance", r.tolerance, between(0.0, 1e6), "factor on the gate's tolerance");
  c.opt("--fresh", r.fresh, "measure stored rows again");
  c.opt("--threads", r.threads, thread_range(), "CPU threads").unset("all");
  add_page_options(c, asked->format);
  add_sweep_options(c, asked->sweep);
  c.run = [asked, &c, &common] { run_ablate(*asked, c, common); };
  add_quality(
      c.sub("quality", "loss curves of baseline and optimized step over hundreds of steps, in one picture",
            "kiln ablate quality --size nano --steps 300 --device cpu"),
      common);
}

}  // namespace kiln::cli
