// kiln bench: timed studies; `op NAME` is here, the others in cmd_bench_<study>.cpp.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "device/gpu_info.h"
#include "studies/op/op.h"
#include "kiln/bench_options.h"
#include "kiln/bench_pages.h"
#include "kiln/sweep_options.h"
#include "kiln/cmd.h"
#include "kiln/cmd_bench_allreduce.h"
#include "kiln/cmd_bench_attention.h"
#include "kiln/cmd_bench_ddp.h"
#include "kiln/cmd_bench_fsdp.h"
#include "kiln/cmd_bench_step.h"
#include "kiln/cmd_bench_warmup.h"
#include "kiln/cmd_bench_zero.h"
#include "device/require_gpu.h"
#include "kiln/console/stop_on_signals.h"
#include "rows/result_log.h"

namespace kiln::cli {
namespace {

struct BenchOpOptions {
  std::string name;
  std::string variants = "all";
  std::vector<std::string> shapes;
  std::string dtypes = "fp32";
  std::string pass = "both";
  std::string threads = "0";
  std::string format;
  std::shared_ptr<SweepOptions> sweep;
};

std::vector<BenchForm> parse_pass(const OpBench& bench, std::string_view text) {
  std::vector<std::string_view> names = {"both", "forward", "backward"};
  for (const BenchForm& f : bench.forms) {
    if (std::find(names.begin(), names.end(), f.name) == names.end()) names.push_back(f.name);
  }
  index_of("--pass", text, names);
  std::vector<BenchForm> forms;
  for (const BenchForm& f : bench.forms) {
    if (text == "both" || text == f.name || (text == "backward" && f.pass == Pass::backward))
      forms.push_back(f);
  }
  if (forms.empty()) {
    throw Error(fmt::format("[{}] has no {} of its own to time", bench.op, text), "use --pass forward",
                ErrorKind::usage);
  }
  return forms;
}

void run_bench_op(const BenchOpOptions& options, const CLI::App& app, const CommonOptions& common) {
  if (options.name.empty()) {
    std::string names;
    for (const OpBench& b : all_op_benches()) names += (names.empty() ? "" : ", ") + b.op;
    throw Error("kiln bench op needs the name of an op", fmt::format("there are {}", names),
                ErrorKind::usage);
  }
  const PageFormat format = read_format(options.format, common.json);

  BenchOpRequest request{.bench = find_op_bench(options.name),
                         .shapes = {},
                         .dtypes = parse_dtypes(options.dtypes),
                         .variants = {},
                         .forms = {},
                         .device = {}};
  if (options.sweep->asked()) {
    std::vector<std::string> sizes;
    for (const auto& [key, value] : request.bench.shapes.front().all()) sizes.push_back(key);
    return run_bench_sweep(*options.sweep, app, common, format, sizes);
  }
  for (const std::string& text : options.shapes)
    request.shapes.push_back(parse_bench_shape(request.bench, text));
  if (request.shapes.empty()) request.shapes = request.bench.shapes;
  for (const BenchShape& shape : request.shapes)
    (void)request.bench.make(shape);  // do its sizes go together?
  if (options.variants != "all") request.variants = split_at_commas(options.variants);
  if (std::find(request.variants.begin(), request.variants.end(), "") != request.variants.end()) {
    throw Error(fmt::format("--variant is '{}', which holds an empty name", options.variants),
                "name variants, or say all", ErrorKind::usage);
  }
  request.forms = parse_pass(request.bench, options.pass);
  request.threads = parse_threads(options.threads);
  request.seed = common.seed;
  std::string why_no_gpu;
  const std::vector<GpuInfo> gpus = list_gpus(&why_no_gpu);
  require_gpu(common.device, gpus, why_no_gpu);
  request.device = Device::parse(common.device);

  check_bench_request(request);
  if (options.sweep->dry_run) return;
  prepare_results(common.out);
  BenchReport report;
  {
    const StopOnSignals signals;
    const BenchProgress progress;
    request.stop = [] { return stop_requested().load(); };
    report = bench_op(request, [&](const std::string& text) { progress(text); });
  }
  std::fputs(bench_page(report, format).c_str(), stdout);
  append_results(common.out, result_lines(report, fmt::format("bench op {}", options.name)));
  if (report.any_wrong())
    throw Error(
        fmt::format("[{}] a variant is further from naive than it may be; it was not timed", report.op));
  if (report.stopped) return;
  if (!report.any_timed() && report.rows.front().status == BenchRow::Status::no_memory)
    throw Error(report.rows.front().reason, "ask for a smaller --shape", ErrorKind::unavailable);
  if (!report.any_timed()) {
    throw Error(
        fmt::format("[{}] nothing could be timed: {} ({}): {}", report.op, report.rows.front().variant,
                    report.rows.front().device, report.rows.front().reason),
        {}, ErrorKind::unavailable);
  }
}

std::function<bool()> add_bench_op(CLI::App& app, const CommonOptions& common) {
  auto options = std::make_shared<BenchOpOptions>();
  CLI::App* op = app.add_subcommand("op", "Every variant of an op: checked against naive, then timed");
  op->fallthrough();  // --json and its like belong to every command
  op->footer(
      "It also takes --json, --seed, --device and --out, as every command does.\n\n"
      "Example:\n  kiln bench op rms_norm --shape rows=8192,cols=4096 --dtype fp32,bf16");
  op->add_option("NAME", options->name, "The op (kiln ops lists them); matmul is linear")->type_name("");
  op->add_option("--variant", options->variants, "all, or names (default all)")->type_name("NAME,...");
  op->add_option("--shape", options->shapes, "Sizes by name; may be given several times")
      ->type_name("KEY=N,...")
      ->allow_extra_args(false);
  op->add_option("--dtype", options->dtypes, "fp32, bf16, fp16, fp64 (default fp32)")->type_name("NAME,...");
  op->add_option("--pass", options->pass,
                 "forward, backward or both (default both); linear: dgrad, wgrad too")
      ->type_name("NAME");
  op->add_option("--threads", options->threads, "Of the CPU (default all)")->type_name("N");
  op->add_option("--format", options->format, kFormatHelp)->type_name("NAME");
  options->sweep = add_sweep_options(op);
  return [options, op, &common] {
    if (op->parsed()) run_bench_op(*options, *op, common);
    return op->parsed();
  };
}

}  // namespace

CommandBody add_bench(CLI::App& app, const CommonOptions& common) {
  app.require_subcommand(0, 1);  // so that `bench op attention` means the op, not another study
  const std::vector<std::function<bool()>> studies = {
      add_bench_op(app, common),        add_bench_step(app, common),  add_bench_warmup(app, common),
      add_bench_attention(app, common), add_bench_flash(app, common), add_bench_leaderboard(app, common),
      add_bench_allreduce(app, common), add_bench_ddp(app, common),   add_bench_zero(app, common),
      add_bench_fsdp(app, common)};
  return [studies] {
    if (!std::any_of(studies.begin(), studies.end(), [](const auto& study) { return study(); }))
      throw Error(
          "kiln bench needs the name of a study: op, step, warmup, attention, flash, allreduce, ddp, zero, "
          "fsdp or "
          "leaderboard",
          "see `kiln bench --help`", ErrorKind::usage);
  };
}

}  // namespace kiln::cli
