#include "kiln/cmd_bench_fsdp.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "base/error.h"
#include "kiln/bench_charts.h"
#include "studies/ranks/fsdp.h"
#include "kiln/bench_options.h"
#include "kiln/sweep_options.h"
#include "kiln/cmd_bench_ranks.h"
#include "base/parse_number.h"
#include "kiln/console/stop_on_signals.h"
#include "studies/ranks/overlap_charts.h"
#include "rows/result_log.h"

namespace kiln::cli {
namespace {

struct Typed : TypedRanks {
  std::string prefetch = "0,1,2", ranks, transport = "auto", exports = "none", format;
  std::shared_ptr<SweepOptions> sweep;
};

BenchFsdpRequest read_request(const Typed& t, const CommonOptions& common) {
  BenchFsdpRequest r;
  r.prefetch = read_list<int>(
      t.prefetch, [](const std::string& word) { return parse_number<int>("--prefetch", word, 0, 64); });
  r.ranks = study_ranks(2);
  read_number<int>("--ranks", t.ranks, 2, 1024, r.ranks);
  r.transport = study_transport(t.transport);
  r.batch = 2 * r.ranks;
  read_ranks_study(t, common, 2, r);  // the first teaches the order of use
  r.device = common.device == "auto" ? Device::cpu() : Device::parse(common.device);
  check_bench_fsdp(r);
  return r;
}

void run_bench_fsdp(const Typed& t, const CLI::App& app, const CommonOptions& common) {
  const PageFormat format = read_format(t.format, common.json);
  const bool pictures = read_chart_export(t.exports);
  if (t.sweep->asked()) return run_bench_sweep(*t.sweep, app, common, format);
  BenchFsdpRequest request = read_request(t, common);
  if (t.sweep->dry_run) return;
  prepare_results(common.out);
  BenchFsdpReport report;
  {
    const StopOnSignals signals;
    const BenchProgress progress;
    request.stop = [] { return stop_requested().load(); };
    report = bench_fsdp(request, [&](const std::string& text) { progress(text); });
  }
  if (report.rows.empty()) return;  // stopped
  std::fputs(fsdp_page(report, format).c_str(), stdout);
  append_results(common.out, fsdp_result_lines(report));
  for (const FsdpRow& r : report.rows) {
    if (!r.wrong.empty()) throw Error(fmt::format("fsdp with prefetch {}: {}", r.prefetch, r.wrong));
  }
  if (!pictures) return;
  std::vector<NamedLedger> steps;
  steps.reserve(report.rows.size());
  for (const FsdpRow& r : report.rows)
    steps.push_back({fmt::format("prefetch {}", r.prefetch), r.run.ledger});
  const std::vector<NamedPicture> drawn = {
      {"overlap",
       overlap_svg(steps, "One step of rank 0, sharded weights gathered ahead", fsdp_caption(report))}};
  for (const std::string& path : write_pictures(common.out, "fsdp", drawn))
    fmt::print(stderr, "wrote {}\n", path);
}

}  // namespace

std::function<bool()> add_bench_fsdp(CLI::App& app, const CommonOptions& common) {
  auto t = std::make_shared<Typed>();
  CLI::App* study =
      app.add_subcommand("fsdp", "Sharded weights gathered ahead: did each arrive before it was wanted?");
  study->fallthrough();  // --json and its like belong to every command
  study->footer(
      "It also takes --json, --seed, --device and --out, as every command does.\n\n"
      "Example:\n  kiln bench fsdp --size micro --ranks 2 --prefetch 0,1,2 --link "
      "latency=50us,bandwidth=1GB/s");
  study->add_option("--prefetch", t->prefetch, "Weights under way beside the one in use (default 0,1,2)")
      ->type_name("K,...");
  study->add_option("--ranks", t->ranks, "How many (default 2)")->type_name("N");
  study->add_option("--transport", t->transport, "threads (default), or as `kiln run` has started them")
      ->type_name("NAME");
  add_ranks_options(*study, *t);
  study->add_option("--batch", t->batch, "Sequences of a step, all ranks together (default 2 each)")
      ->type_name("N");
  study->add_option("--warmup", t->warmups, "Steps before the timed ones, 2 or more (default 3)")
      ->type_name("N");
  study->add_option("--steps", t->steps, "Timed steps (default 7)")->type_name("N");
  study->add_option("--export", t->exports, "svg or none (default): the steps as lanes, into OUT/fsdp")
      ->type_name("NAME");
  study->add_option("--format", t->format, kFormatHelp)->type_name("NAME");
  t->sweep = add_sweep_options(study);
  return [t, study, &common] {
    if (study->parsed()) run_bench_fsdp(*t, *study, common);
    return study->parsed();
  };
}

}  // namespace kiln::cli
