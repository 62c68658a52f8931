#include "kiln/cmd_bench_ddp.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "base/atomic_file.h"
#include "base/error.h"
#include "kiln/bench_charts.h"
#include "studies/ranks/ddp.h"
#include "kiln/bench_options.h"
#include "kiln/sweep_options.h"
#include "kiln/cmd_bench_ranks.h"
#include "base/parse_number.h"
#include "kiln/console/stop_on_signals.h"
#include "rows/result_log.h"

namespace kiln::cli {
namespace {

struct Typed : TypedRanks {
  std::string forms = "naive,flat,overlap,bucketed", buckets = "1,10,100,1000", ranks, transport = "auto",
              wire = "fp32", preset = "optimized", rounds, exports = "none", format;
  std::shared_ptr<SweepOptions> sweep;
};

double read_bucket(const std::string& word) {
  return word == "auto" ? -1 : parse_number<double>("--bucket-mb", word, 0.0, 1e9);
}

BenchDdpRequest read_request(const Typed& t, const CommonOptions& common) {
  BenchDdpRequest r;
  r.forms = read_list<std::string>(t.forms, [](const std::string& word) {
    index_of("--form", word, {"naive", "flat", "overlap", "bucketed"});
    return word;
  });
  r.buckets = read_list<double>(t.buckets, read_bucket);
  r.ranks = study_ranks(2);
  read_number<int>("--ranks", t.ranks, 1, 1024, r.ranks);
  r.transport = study_transport(t.transport);
  r.wire = parse_wire("--wire", t.wire);
  index_of("--preset", t.preset, {"optimized", "baseline"});
  r.preset = t.preset;
  r.batch = 2 * r.ranks;
  read_ranks_study(t, common, 1, r);
  read_number<int>("--rounds", t.rounds, 1, 1000, r.rounds);
  r.out = common.out;
  r.device = device_of(common);
  check_bench_ddp(r);
  return r;
}

void write_traces(const std::string& out, const BenchDdpReport& report) {
  const std::vector<NamedLedger> pair = ddp_pair(report);
  for (const std::string& path : write_pictures(
           out, "ddp",
           std::vector<NamedPicture>{
               {"overlap", overlap_svg(pair, "One step of rank 0, form by form", ddp_caption(report))}}))
    fmt::print(stderr, "wrote {}\n", path);
  const std::string trace = (std::filesystem::path(out) / "ddp" / "overlap.trace.json").string();
  write_file_atomically(trace, overlap_trace(pair, fmt::format("bench ddp: {}", ddp_caption(report))));
  fmt::print(stderr, "wrote {}\n", trace);
}

void run_bench_ddp(const Typed& t, const CLI::App& app, const CommonOptions& common) {
  const PageFormat format = read_format(t.format, common.json);
  const bool pictures = read_chart_export(t.exports);
  if (t.sweep->asked()) return run_bench_sweep(*t.sweep, app, common, format);
  BenchDdpRequest request = read_request(t, common);
  if (t.sweep->dry_run) return;
  prepare_results(common.out);
  BenchDdpReport report;
  {
    const StopOnSignals signals;
    const BenchProgress progress;
    request.stop = [] { return stop_requested().load(); };
    report = bench_ddp(request, [&](const std::string& text) { progress(text); });
  }
  if (report.rows.empty()) return;  // stopped, or a process that is not the first rank
  std::fputs(ddp_page(report, format).c_str(), stdout);
  append_results(common.out, ddp_result_lines(report));
  if (pictures) write_traces(common.out, report);
  for (const DdpRow& r : report.rows) {
    if (!r.wrong.empty()) throw Error(fmt::format("ddp:{}: {}", r.form, r.wrong));
  }
}

}  // namespace

std::function<bool()> add_bench_ddp(CLI::App& app, const CommonOptions& common) {
  auto t = std::make_shared<Typed>();
  CLI::App* study = app.add_subcommand(
      "ddp", "Data parallel training in four forms: step time, communication, how much of it is hidden");
  study->fallthrough();  // --json and its like belong to every command
  study->footer(
      "It also takes --json, --seed, --device and --out, as every command does.\n\n"
      "Example:\n  kiln bench ddp --size micro --ranks 2 --bucket-mb 1,10,auto --link "
      "latency=50us,bandwidth=1GB/s --export svg");
  study->add_option("--form,--impl", t->forms, "naive, flat, overlap, bucketed (default all)")
      ->type_name("NAME,...");
  study
      ->add_option("--bucket-mb", t->buckets,
                   "Of bucketed, in 10^6 bytes, or auto: predicted from the link (default 1,10,100,1000)")
      ->type_name("X,...");
  study->add_option("--ranks", t->ranks, "How many (default 2)")->type_name("N");
  study->add_option("--transport", t->transport, "threads (default), or as `kiln run` has started them")
      ->type_name("NAME");
  study->add_option("--wire", t->wire, "Of gradients: fp32 (default) or bf16")->type_name("NAME");
  add_ranks_options(*study, *t);
  study->add_option("--batch", t->batch, "Sequences of a step, all ranks together (default 2 each)")
      ->type_name("N");
  study->add_option("--preset", t->preset, "optimized (default) or baseline")->type_name("NAME");
  study->add_option("--warmup", t->warmups, "Steps before the timed ones (default 3)")->type_name("N");
  study->add_option("--steps", t->steps, "Timed steps of a round (default 10)")->type_name("N");
  study->add_option("--rounds", t->rounds, "Forms take turns so many times (default 2)")->type_name("N");
  study
      ->add_option("--export", t->exports,
                   "svg or none (default): the pair of traces as an image and for Perfetto, into OUT/ddp")
      ->type_name("NAME");
  study->add_option("--format", t->format, kFormatHelp)->type_name("NAME");
  t->sweep = add_sweep_options(study);
  return [t, study, &common] {
    if (study->parsed()) run_bench_ddp(*t, *study, common);
    return study->parsed();
  };
}

}  // namespace kiln::cli
