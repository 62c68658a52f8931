// kiln bench zero: memory and communication of sharded training.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "base/error.h"
#include "kiln/bench_commands.h"
#include "kiln/bench_options.h"
#include "kiln/rank_options.h"
#include "rows/result_log.h"
#include "studies/chart_export.h"
#include "studies/ranks/zero.h"
#include "train/presets.h"

namespace kiln::cli {
namespace {

struct Asked : RanksAsked {
  BenchZeroRequest request;
};

void run_bench_zero(Asked& asked, const Command& command, const CommonOptions& common) {
  const PageFormat format = page_format(command, asked.format, common);
  const bool charts = read_chart_export(asked.charts);
  if (asked.sweep.asked()) return run_bench_sweep(asked.sweep, swept(command, common), common, format);
  BenchZeroRequest& request = asked.request;
  finish_ranks_study(command, common, asked, request);
  check_batch_options(command);
  if (const int started = study_ranks(0); started > 0 && !was_given(command, "--ranks"))
    request.ranks = {started};
  request.device = device_here(common);
  check_bench_zero(request);
  if (asked.sweep.dry_run) return;
  prepare_results(common.out);
  const BenchZeroReport report = watched(request, bench_zero);
  if (report.rows.empty()) return;  // stopped, or a process that is not the first rank
  print_page(zero_page(report, common.wide), format, common.wide);
  append_results(common.out, zero_result_lines(report));
  for (const ZeroRow& r : report.rows) {
    if (r.gate_failed()) throw Error(fmt::format("stage {} on {} ranks: {}", r.stage, r.ranks, r.reason));
  }
  if (!charts) return;
  for (const std::string& path : write_charts(common.out, "zero", zero_charts(report)))
    fmt::print(stderr, "wrote {}\n", path);
}

}  // namespace

void add_bench_zero(Command& bench, const CommonOptions& common) {
  auto asked = std::make_shared<Asked>();
  BenchZeroRequest& r = asked->request;
  Command& c = bench.sub("zero", "ZeRO stages: memory saved and communication cost",
                         "kiln bench zero --size micro --ranks 1,2,4,8 --stage 0,1:simple,1,2 --export svg");
  c.note = "One row per stage and number of ranks.";
  c.opt("--stage", r.stages, list_form(one_of_form("--stage", {"0", "1:simple", "1", "2", "3"})),
        "0 (nothing is sharded), 1:simple, 1, 2, 3")
      .value("NAME,...");
  c.opt("--ranks", r.ranks, between(1, 1024), "numbers of ranks");
  add_batch_options(c, r);
  c.opt("--bucket-mb", r.bucket_mb, between(0.0, 1e9), "largest bucket, in 10^6 bytes");
  c.opt("--preset", r.preset, preset_names(), "{}");
  c.opt("--measure", r.measure, on_off_form("--measure"),
        "on: run where it fits in memory; off: only predict");
  add_ranks_options(c, r, *asked, /*least_warmups=*/1);
  add_ranks_page_options(c, *asked, "curves of memory and communication, into OUT/zero");
  c.run = [asked, &c, &common] { run_bench_zero(*asked, c, common); };
}

}  // namespace kiln::cli
