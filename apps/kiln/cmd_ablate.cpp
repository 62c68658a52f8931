// `kiln ablate`: the optimizations one by one and together, behind a quality gate (docs/ablation.md).
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/error.h"
#include "device/gpu_info.h"
#include "studies/ablation/ablation.h"
#include "kiln/ablate_pages.h"
#include "kiln/bench_options.h"
#include "kiln/cmd.h"
#include "base/parse_number.h"
#include "device/require_gpu.h"
#include "kiln/console/stop_on_signals.h"
#include "rows/result_log.h"
#include "report/result_table.h"

namespace kiln::cli {
namespace {

struct Typed {
  std::string size, batch, ctx, vocab, warmups, steps, gate_steps, tolerance, only, threads = "0", format;
  bool quick = false, fresh = false;
};

// In the order they are added up, whatever the order typed.
std::vector<std::string_view> read_switches(const std::string& only) {
  std::vector<std::string_view> asked, ordered;
  if (!only.empty())
    asked = read_list<std::string_view>(
        only, [](const std::string& word) { return find_ablation_switch("--only", word).name; });
  for (const AblationSwitch& s : ablation_switches()) {
    if (only.empty() || std::find(asked.begin(), asked.end(), s.name) != asked.end())
      ordered.push_back(s.name);
  }
  return ordered;
}

AblateRequest read_request(const Typed& t, const CommonOptions& common) {
  AblateRequest r;
  // Quick: the smallest model and context whose step is more than overhead (docs/ablation.md).
  const std::string size = !t.size.empty() ? t.size : t.quick ? "tiny" : "small";
  const std::vector<ModelSize> sizes = read_sizes(size, t.vocab);
  if (sizes.size() != 1)
    throw Error(fmt::format("--size has {} values; an ablation takes one", sizes.size()), {},
                ErrorKind::usage);
  r.size = sizes.front();
  if (t.quick) {
    r.batch = 1;
    r.context = 128;
    r.warmups = 1;
    r.steps = 8;
    r.gate_steps = 4;
  }
  read_number<int64_t>("--batch", t.batch, 1, 1 << 20, r.batch);
  read_number<int64_t>("--ctx", t.ctx, 1, 1 << 24, r.context);
  read_number<int>("--warmup", t.warmups, 0, 1 << 20, r.warmups);
  read_number<int>("--steps", t.steps, 1, 1 << 20, r.steps);
  read_number<int>("--gate-steps", t.gate_steps, 1, 1 << 20, r.gate_steps);
  read_number<double>("--tolerance", t.tolerance, 0.0, 1e6, r.tolerance);
  r.only = read_switches(t.only);
  r.threads = parse_threads(t.threads);
  r.seed = common.seed;
  r.out = common.out;
  r.fresh = t.fresh;
  std::string why_no_gpu;
  const std::vector<GpuInfo> gpus = list_gpus(&why_no_gpu);
  require_gpu(common.device, gpus, why_no_gpu);
  r.device = Device::parse(common.device);
  check_ablate(r);
  return r;
}

void run_ablate(const Typed& typed, const CommonOptions& common) {
  const PageFormat format = read_format(typed.format, common.json);
  AblateRequest request = read_request(typed, common);
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
  std::fputs(ablate_page(report, format).c_str(), stdout);
  if (format == PageFormat::csv) {
    for (const std::string& line : report.remarks) fmt::print(stderr, "{}\n", line);
  }
  for (const nlohmann::json& row : report.rows) {
    if (word_at(row, "gate") == "failed")
      throw Error(fmt::format("{} {}: the gate failed: {}", word_at(row, "group"), word_at(row, "switch"),
                              word_at(row, "reason")),
                  "the other rows stand");
  }
}

}  // namespace

CommandBody add_ablate(CLI::App& app, const CommonOptions& common) {
  auto t = std::make_shared<Typed>();
  std::string names;
  for (const AblationSwitch& s : ablation_switches()) names += fmt::format("  {:<16} {}\n", s.name, s.what);
  app.description(app.get_description() + "\n\nSwitches, in the order they are added up:\n" + names);
  app.add_flag("--quick", t->quick, "A model and sizes that take two minutes at most on two cores");
  app.add_option("--size", t->size, "A model by a name of kiln sizes (default small; quick: tiny)")
      ->type_name("NAME");
  app.add_option("--batch", t->batch, "Sequences of a step (default 4; quick: 1)")->type_name("N");
  app.add_option("--ctx,--context", t->ctx, "Tokens of a sequence (default 512; quick: 128)")->type_name("N");
  app.add_option("--vocab", t->vocab, "Tokens of the vocabulary (default as the size has it)")
      ->type_name("N");
  app.add_option("--only", t->only, "Switches to turn on (default all)")->type_name("NAME,...");
  app.add_option("--warmup", t->warmups, "Steps before the timed ones (default 3; quick: 1)")->type_name("N");
  app.add_option("--steps", t->steps, "Timed steps of a row (default 10; quick: 8)")->type_name("N");
  app.add_option("--gate-steps", t->gate_steps,
                 "Steps of training before the losses are compared (default 8; quick: 4)")
      ->type_name("N");
  app.add_option("--tolerance", t->tolerance, "Times what the gate allows (default 1)")->type_name("X");
  app.add_flag("--fresh", t->fresh, "Measure rows again that are stored already");
  app.add_option("--threads", t->threads, "Of the CPU (default all)")->type_name("N");
  app.add_option("--format", t->format, kFormatHelp)->type_name("NAME");
  return [t, &common] { run_ablate(*t, common); };
}

}  // namespace kiln::cli
