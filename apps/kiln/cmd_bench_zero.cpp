#include "kiln/cmd_bench_zero.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "base/error.h"
#include "kiln/bench_charts.h"
#include "kiln/bench_options.h"
#include "kiln/sweep_options.h"
#include "studies/ranks/zero.h"
#include "kiln/cmd_bench_ranks.h"
#include "base/parse_number.h"
#include "kiln/console/stop_on_signals.h"
#include "rows/result_log.h"

namespace kiln::cli {
namespace {

struct Typed : TypedRanks {
  std::string stages = "0,1:simple,1,2", ranks, transport = "auto", bucket, preset = "optimized",
              measure = "on", exports = "none", format;
  std::shared_ptr<SweepOptions> sweep;
};

BenchZeroRequest read_request(const Typed& t, const CommonOptions& common) {
  BenchZeroRequest r;
  r.stages = read_list<std::string>(t.stages, [](const std::string& word) {
    index_of("--stage", word, {"0", "1:simple", "1", "2", "3"});
    return word;
  });
  const std::string usual = study_ranks(0) > 0 ? std::to_string(study_ranks(0)) : "1,2,4,8";
  r.ranks = read_list<int>(t.ranks.empty() ? usual : t.ranks, [](const std::string& word) {
    return parse_number<int>("--ranks", word, 1, 1024);
  });
  r.transport = study_transport(t.transport);
  read_number<double>("--bucket-mb", t.bucket, 0.0, 1e9, r.bucket_mb);
  read_ranks_study(t, common, 1, r);
  index_of("--preset", t.preset, {"optimized", "baseline"});
  r.preset = t.preset;
  r.measure = index_of("--measure", t.measure, {"off", "on"}) == 1;
  r.device = device_of(common);
  check_bench_zero(r);
  return r;
}

void run_bench_zero(const Typed& t, const CLI::App& app, const CommonOptions& common) {
  const PageFormat format = read_format(t.format, common.json);
  const bool pictures = read_chart_export(t.exports);
  if (t.sweep->asked()) return run_bench_sweep(*t.sweep, app, common, format);
  BenchZeroRequest request = read_request(t, common);
  if (t.sweep->dry_run) return;
  prepare_results(common.out);
  BenchZeroReport report;
  {
    const StopOnSignals signals;
    const BenchProgress progress;
    request.stop = [] { return stop_requested().load(); };
    report = bench_zero(request, [&](const std::string& text) { progress(text); });
  }
  if (report.rows.empty()) return;  // stopped, or a process that is not the first rank
  std::fputs(zero_page(report, format).c_str(), stdout);
  append_results(common.out, zero_result_lines(report));
  for (const ZeroRow& r : report.rows) {
    if (!r.wrong.empty()) throw Error(fmt::format("stage {} on {} ranks: {}", r.stage, r.ranks, r.wrong));
  }
  if (!pictures) return;
  for (const std::string& path : write_pictures(common.out, "zero", zero_pictures(report)))
    fmt::print(stderr, "wrote {}\n", path);
}

}  // namespace

std::function<bool()> add_bench_zero(CLI::App& app, const CommonOptions& common) {
  auto t = std::make_shared<Typed>();
  CLI::App* study = app.add_subcommand(
      "zero", "Sharding, stage by stage: what it saves in memory and what it costs in communication");
  study->fallthrough();  // --json and its like belong to every command
  study->footer(
      "There is a row for each stage and number of ranks. It also takes --json, --seed, --device and --out, "
      "as "
      "every command does.\n\n"
      "Example:\n  kiln bench zero --size micro --ranks 1,2,4,8 --stage 0,1:simple,1,2 --export svg");
  study
      ->add_option("--stage", t->stages, "0 (nothing is sharded), 1:simple, 1, 2, 3 (default 0,1:simple,1,2)")
      ->type_name("NAME,...");
  study->add_option("--ranks", t->ranks, "How many (default 1,2,4,8)")->type_name("N,...");
  study->add_option("--transport", t->transport, "threads (default), or as `kiln run` has started them")
      ->type_name("NAME");
  study->add_option("--bucket-mb", t->bucket, "The cap of a bucket, in 10^6 bytes (default 25)")
      ->type_name("X");
  add_ranks_options(*study, *t);
  study->add_option("--batch", t->batch, "Sequences of each rank (default 1)")->type_name("N");
  study->add_option("--preset", t->preset, "optimized (default) or baseline")->type_name("NAME");
  study->add_option("--warmup", t->warmups, "Steps before the timed ones (default 2)")->type_name("N");
  study->add_option("--steps", t->steps, "Timed steps (default 5)")->type_name("N");
  study->add_option("--measure", t->measure, "on (default), where there is room, or off: meta alone")
      ->type_name("NAME");
  study->add_option("--export", t->exports, "svg or none (default): the curves, into OUT/zero")
      ->type_name("NAME");
  study->add_option("--format", t->format, kFormatHelp)->type_name("NAME");
  t->sweep = add_sweep_options(study);
  return [t, study, &common] {
    if (study->parsed()) run_bench_zero(*t, *study, common);
    return study->parsed();
  };
}

}  // namespace kiln::cli
