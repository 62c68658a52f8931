// kiln bench fsdp: sharded weights gathered ahead.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "base/error.h"
#include "kiln/bench_commands.h"
#include "kiln/bench_options.h"
#include "kiln/rank_options.h"
#include "rows/result_log.h"
#include "studies/chart_export.h"
#include "studies/ranks/fsdp.h"

namespace kiln::cli {
namespace {

struct Asked : RanksAsked {
  BenchFsdpRequest request;
};

TextForm<int> prefetch_form() {
  return {[](const std::string& text) {
            return text == "auto" ? kAutoPrefetch
                                  : read_number_as("--prefetch", text, NumberRange<int>{0, 64});
          },
          [](const int& k) { return k == kAutoPrefetch ? std::string("auto") : std::to_string(k); }};
}

void run_bench_fsdp(Asked& asked, const Command& command, const CommonOptions& common) {
  const PageFormat format = page_format(command, asked.format, common);
  const bool charts = read_chart_export(asked.charts);
  if (asked.sweep.asked()) return run_bench_sweep(asked.sweep, swept(command, common), common, format);
  BenchFsdpRequest& request = asked.request;
  finish_ranks_study(command, common, asked, request);
  if (!was_given(command, "--ranks")) request.ranks = study_ranks(request.ranks);
  if (!was_given(command, "--batch")) request.batch = 2 * request.ranks;
  request.device = common.device == "auto" ? Device::cpu() : Device::parse(common.device);
  check_bench_fsdp(request);
  if (asked.sweep.dry_run) return;
  prepare_results(common.out);
  const BenchFsdpReport report = watched(request, bench_fsdp);
  if (report.rows.empty()) return;  // stopped
  print_page(fsdp_page(report, common.wide), format, common.wide);
  append_results(common.out, fsdp_result_lines(report));
  for (const FsdpRow& r : report.rows) {
    if (r.gate_failed()) throw Error(fmt::format("fsdp with prefetch {}: {}", r.prefetch, r.reason));
  }
  if (!charts) return;
  for (const std::string& path : write_charts(common.out, "fsdp", fsdp_charts(report)))
    fmt::print(stderr, "wrote {}\n", path);
}

}  // namespace

void add_bench_fsdp(Command& bench, const CommonOptions& common) {
  auto asked = std::make_shared<Asked>();
  BenchFsdpRequest& r = asked->request;
  Command& c = bench.sub(
      "fsdp", "sharded weights gathered ahead: did each arrive in time?",
      "kiln bench fsdp --size micro --ranks 2 --prefetch 0,1,2 --link latency=50us,bandwidth=1GB/s");
  c.opt("--prefetch,--fsdp-prefetch", r.prefetch, list_form(prefetch_form()),
        "weights gathered ahead of the one in use; auto: the depth predicted from the first run's uses")
      .value("K|auto,...");
  c.opt("--ranks", r.ranks, between(2, 1024), "number of ranks");
  c.opt("--batch", r.batch, between(1, 1 << 20), "global micro-batch size").unset("2 on each rank");
  add_ranks_options(c, r, *asked, /*least_warmups=*/2);  // the first teaches the order of use
  add_ranks_page_options(c, *asked, "the steps as lanes, into OUT/fsdp");
  c.run = [asked, &c, &common] { run_bench_fsdp(*asked, c, common); };
}

}  // namespace kiln::cli
