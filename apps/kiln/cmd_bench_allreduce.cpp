// kiln bench allreduce: sums over ranks.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "base/error.h"
#include "dist/launch/rank_limit.h"
#include "dist/launch/transports.h"
#include "kiln/bench_commands.h"
#include "kiln/bench_options.h"
#include "kiln/rank_options.h"
#include "rows/result_log.h"
#include "studies/chart_export.h"
#include "studies/ranks/allreduce.h"

namespace kiln::cli {
namespace {

constexpr NamedValue<DType> kDTypes[] = {
    {"fp32", DType::f32}, {"bf16", DType::bf16}, {"fp16", DType::f16}, {"fp64", DType::f64}};

struct Asked {
  BenchAllReduceRequest request;
  std::string charts = "none";
  PageFormat format = PageFormat::text;
  SweepOptions sweep;
};

void report_failures(const BenchAllReduceReport& report) {
  for (const AllReduceRow& r : report.rows)
    if (r.gate_failed()) throw Error(r.why_not());
  if (!report.any_timed() && !report.stopped)
    throw Error(fmt::format("nothing could be timed: {}", report.rows.front().reason),
                report.hint.empty() ? "take a smaller --bytes or fewer --ranks" : report.hint, report.kind);
}

void run_bench_allreduce(Asked& asked, const Command& command, const CommonOptions& common) {
  const PageFormat format = page_format(command, asked.format, common);
  const bool charts = read_chart_export(asked.charts);
  if (asked.sweep.asked()) return run_bench_sweep(asked.sweep, swept(command, common), common, format);
  BenchAllReduceRequest& request = asked.request;
  request.seed = common.seed;
  request.device = Device::parse(common.device);
  if (request.device.is_meta())
    throw Error("meta moves nothing: there is nothing to time", {}, ErrorKind::usage);
  if (was_given(command, "--ranks")) {
    for (const int ranks : request.ranks) check_rank_count("--ranks", ranks, request.oversubscribe);
  }
  if (asked.sweep.dry_run) return;
  const BenchAllReduceReport report = watched(request, bench_allreduce);
  if (report.rows.empty() && !report.stopped) return;  // a rank other than the first
  prepare_results(common.out);
  print_page(allreduce_page(report, common.wide), format, common.wide);
  append_results(common.out, allreduce_result_lines(report));
  if (charts) write_allreduce_charts(common.out, report);
  report_failures(report);
}

}  // namespace

void add_bench_allreduce(Command& bench, const CommonOptions& common) {
  auto asked = std::make_shared<Asked>();
  BenchAllReduceRequest& r = asked->request;
  Command& c = bench.sub("allreduce", "all-reduce: time, bandwidth, and what bounds it",
                         "kiln bench allreduce --bytes 1MB,10MB,100MB --ranks 2,4 --transport threads,mpi");
  c.note = "Lists give one row per combination.";
  c.opt("--bytes", r.sizes, list_form(bytes_form("--bytes")), "tensor sizes")
      .was("--size")
      .value("BYTES,...");
  c.opt("--ranks", r.ranks, between(1, 1024), "numbers of ranks");
  c.opt("--oversubscribe", r.oversubscribe, "more than 4 ranks to a core").not_in_config();
  c.opt("--transport", r.transports, list_form(one_of_form("--transport", transport_names())),
        "of " + transport_list())
      .value("NAME,...");
  c.opt("--algorithm", r.algorithms, list_form(one_of_form("--algorithm", {"direct", "ring", "alternate"})),
        "direct (the transport's own), ring, alternate")
      .value("NAME,...");
  c.opt("--dtype", r.dtypes, kDTypes, "{}");
  c.opt("--warmup", r.warmups, between(1, 1000), "warm-up calls");
  c.opt("--samples", r.samples, between(2, 10000), "maximum timed calls; fewer where they are slow");
  c.opt("--reduction", r.reduction, one_of({"auto", "deterministic", "library"}),
        "reduction order of mpi and nccl: deterministic (by rank); library (their own); auto: mpi's "
        "deterministic, nccl's its own")
      .was("--sums")
      .was_value("ranked", "deterministic")
      .was_value("engine", "library");
  c.opt("--comm-timeout", r.timeout, between(0.1, 1e6), "seconds a rank waits for the others").value("S");
  c.opt("--export", asked->charts, one_of({"svg", "none"}), "charts, into OUT/allreduce").not_in_config();
  add_page_options(c, asked->format);
  add_sweep_options(c, asked->sweep);
  c.run = [asked, &c, &common] { run_bench_allreduce(*asked, c, common); };
}

}  // namespace kiln::cli
