// kiln bench ddp: data parallel training, form by form.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "kiln/bench_commands.h"
#include "kiln/bench_options.h"
#include "kiln/rank_options.h"
#include "report/html/timeline_html.h"
#include "rows/result_log.h"
#include "studies/chart_export.h"
#include "studies/ranks/ddp.h"
#include "train/presets.h"

namespace kiln::cli {
namespace {

constexpr NamedValue<DType> kGradDTypes[] = {{"fp32", DType::f32}, {"bf16", DType::bf16}};

struct Asked : RanksAsked {
  BenchDdpRequest request;
};

void write_traces(const std::string& out, const BenchDdpReport& report) {
  const std::vector<NamedLedger> pair = ddp_pair(report);
  for (const std::string& path :
       write_charts(out, "ddp",
                    std::vector<NamedChart>{
                        {"overlap", overlap_svg(pair, "One step of rank 0, by form", ddp_caption(report))}}))
    fmt::print(stderr, "wrote {}\n", path);
  const std::string trace = (std::filesystem::path(out) / "ddp" / "overlap.trace.json").string();
  const std::string viewer =
      write_timeline_files(overlap_timeline(pair, fmt::format("bench ddp: {}", ddp_caption(report))), trace);
  fmt::print(stderr, "wrote {}\nwrote {}\n", trace, viewer);
}

void run_bench_ddp(Asked& asked, const Command& command, const CommonOptions& common) {
  const PageFormat format = page_format(command, asked.format, common);
  const bool charts = read_chart_export(asked.charts);
  if (asked.sweep.asked()) return run_bench_sweep(asked.sweep, swept(command, common), common, format);
  BenchDdpRequest& request = asked.request;
  finish_ranks_study(command, common, asked, request);
  if (!was_given(command, "--ranks")) request.ranks = study_ranks(request.ranks);
  if (!was_given(command, "--batch")) request.batch = 2 * request.ranks;
  request.out = common.out;
  request.device = device_here(common);
  check_bench_ddp(request);
  if (asked.sweep.dry_run) return;
  prepare_results(common.out);
  const BenchDdpReport report = watched(request, bench_ddp);
  if (report.rows.empty()) return;  // stopped, or a process that is not the first rank
  print_page(ddp_page(report, common.wide), format, common.wide);
  append_results(common.out, ddp_result_lines(report));
  if (charts) write_traces(common.out, report);
  for (const DdpRow& r : report.rows) {
    if (r.gate_failed()) throw Error(fmt::format("ddp:{}: {}", r.form, r.reason));
  }
}

}  // namespace

void add_bench_ddp(Command& bench, const CommonOptions& common) {
  auto asked = std::make_shared<Asked>();
  BenchDdpRequest& r = asked->request;
  Command& c = bench.sub(
      "ddp", "data-parallel training in four forms: step time, communication, and how much of it is hidden",
      "kiln bench ddp --size micro --ranks 2 --bucket-mb 1,10,auto --link latency=50us,bandwidth=1GB/s "
      "--export svg");
  c.opt("--form,--impl", r.forms, list_form(one_of_form("--form", {"naive", "flat", "overlap", "bucketed"})),
        "naive, flat, overlap, bucketed")
      .value("NAME,...");
  c.opt("--bucket-mb", r.buckets, list_form(bucket_form(0, kBestBucket)),
        "bucket size of bucketed, in 10^6 bytes, or auto: predicted from the link")
      .value("X,...");
  c.opt("--ranks", r.ranks, between(1, 1024), "number of ranks");
  c.opt("--batch", r.batch, between(1, 1 << 20), "global micro-batch size").unset("2 on each rank");
  c.opt("--grad-comm-dtype", r.wire, kGradDTypes, "dtype of gradients in collectives: {}").was("--wire");
  c.opt("--preset", r.preset, preset_names(), "{}");
  c.opt("--rounds", r.rounds, between(1, 1000), "rounds of alternating measurements of the forms");
  add_ranks_options(c, r, *asked, /*least_warmups=*/1);
  add_ranks_page_options(c, *asked, "the pair of traces as an image and for Perfetto, into OUT/ddp");
  c.run = [asked, &c, &common] { run_bench_ddp(*asked, c, common); };
}

}  // namespace kiln::cli
