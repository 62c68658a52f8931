// kiln bench: timed studies; `op NAME` is here, the others in cmd_bench_<study>.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/choice.h"
#include "base/error.h"
#include "kiln/bench_commands.h"
#include "kiln/bench_options.h"
#include "kiln/command.h"
#include "kiln/console/progress.h"
#include "kiln/console/stop_on_signals.h"
#include "kiln/sweep_options.h"
#include "ops/renamed.h"
#include "rows/result_log.h"
#include "studies/op/render.h"

namespace kiln::cli {
namespace {

struct Asked {
  BenchOpRequest request;
  std::string name, pass = "both";
  std::vector<std::string> variants = {"all"}, shapes;
  PageFormat format = PageFormat::text;
  SweepOptions sweep;
};

OpBench bench_named(const std::string& name) {
  if (!name.empty()) return find_op_bench(name);
  std::string names;
  for (const OpBench& b : all_op_benches()) names += (names.empty() ? "" : ", ") + b.op;
  throw Error("kiln bench op needs the name of an op", fmt::format("there are {}", names), ErrorKind::usage);
}

// Which words there are is the op's own.
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

void fill_request(Asked& asked) {
  BenchOpRequest& r = asked.request;
  for (const std::string& text : asked.shapes) r.shapes.push_back(parse_bench_shape(r.bench, text));
  if (r.shapes.empty()) r.shapes = r.bench.shapes;
  for (const BenchShape& shape : r.shapes) (void)r.bench.make(shape);  // do its sizes fit each other?
  if (std::find(asked.variants.begin(), asked.variants.end(), "") != asked.variants.end()) {
    throw Error(fmt::format("--variant is '{}', which holds an empty name", joined(asked.variants)),
                "name variants, or say all", ErrorKind::usage);
  }
  if (joined(asked.variants) != "all") r.variants = asked.variants;
  r.forms = parse_pass(r.bench, asked.pass);
}

// Ends in an error where a variant is wrong, or nothing was timed: the page has said what could be measured.
void report_failures(const BenchReport& report) {
  if (report.any_wrong())
    throw Error(
        fmt::format("[{}] a variant is further from naive than it may be; it was not timed", report.op));
  if (report.stopped || report.any_timed()) return;
  const BenchRow& row = report.rows.front();
  if (row.status == RowStatus::oom) throw Error(row.reason, "take a smaller --shape", ErrorKind::unavailable);
  throw Error(
      fmt::format("[{}] nothing could be timed: {} ({}): {}", report.op, row.variant, row.device, row.reason),
      {}, ErrorKind::unavailable);
}

void run_bench_op(Asked& asked, const Command& command, const CommonOptions& common) {
  BenchOpRequest& request = asked.request;
  request.bench = bench_named(asked.name);
  const PageFormat format = page_format(command, asked.format, common);
  if (asked.sweep.asked()) {
    std::vector<std::string> sizes;
    for (const auto& [key, value] : request.bench.shapes.front().all()) sizes.push_back(key);
    return run_bench_sweep(asked.sweep, swept(command, common), common, format, sizes);
  }
  fill_request(asked);
  request.seed = common.seed;
  request.device = device_here(common);
  check_bench_request(request);
  if (asked.sweep.dry_run) return;
  prepare_results(common.out);
  BenchReport report;
  {
    const StopOnSignals signals;
    const BenchProgress progress;
    request.stop = [] { return stop_requested().load(); };
    report = bench_op(request, [&](const std::string& text) { progress(text); });
  }
  print_page(op_page(report, common.wide), format, common.wide);
  append_results(common.out, op_result_lines(report, fmt::format("bench op {}", asked.name)));
  report_failures(report);
}

void add_bench_op(Command& bench, const CommonOptions& common) {
  auto asked = std::make_shared<Asked>();
  BenchOpRequest& r = asked->request;
  Command& c = bench.sub("op", "every variant of an op: checked against naive, then timed",
                         "kiln bench op rms_norm --shape rows=8192,cols=4096 --dtype fp32,bf16");
  c.opt("NAME", asked->name, "op of `kiln ops`; matmul is linear").was_values(former_names_in);
  c.opt("--variant", asked->variants, "variants by name, or all").was_values(former_names_in);
  c.opt("--shape", asked->shapes, "sizes by name, the op's defaults for others; repeat for more shapes")
      .value("KEY=N,...")
      .repeat();
  c.opt("--dtype", r.dtypes, dtypes_form(), "{}").offers(dtype_words()).value("NAME,...");
  c.opt("--pass", asked->pass, "forward, backward or both; also dgrad and wgrad of linear");
  c.opt("--threads", r.threads, thread_range(), "CPU threads").unset("all");
  add_page_options(c, asked->format);
  add_sweep_options(c, asked->sweep);
  c.run = [asked, &c, &common] { run_bench_op(*asked, c, common); };
}

}  // namespace

void add_bench(Command& bench, const CommonOptions& common) {
  bench.needs = "the name of a study";
  add_bench_op(bench, common);
  add_bench_step(bench, common);
  add_bench_warmup(bench, common);
  add_bench_attention(bench, common);
  add_bench_flash(bench, common);
  add_bench_leaderboard(bench, common);
  add_bench_allreduce(bench, common);
  add_bench_ddp(bench, common);
  add_bench_zero(bench, common);
  add_bench_fsdp(bench, common);
}

}  // namespace kiln::cli
