#include "kiln/cmd_bench_allreduce.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "base/build_info.h"
#include "base/error.h"
#include "base/units.h"
#include "kiln/bench_allreduce.h"
#include "kiln/bench_charts.h"
#include "studies/format.h"
#include "kiln/bench_options.h"
#include "kiln/sweep_options.h"
#include "base/parse_number.h"
#include "kiln/console/stop_on_signals.h"
#include "rows/result_log.h"

namespace kiln::cli {
namespace {

using nlohmann::ordered_json;

struct Typed {
  std::string sizes = "1MB,10MB,100MB,1GB", ranks = "2,4,6", transports = "threads,mpi",
              algorithms = "direct", dtypes = "fp32", warmups = "5", samples = "30", timeout = "60",
              sums = "auto", exports = "none", format;
  std::shared_ptr<SweepOptions> sweep;
};

BenchAllReduceRequest read_request(const Typed& t, const CommonOptions& common) {
  BenchAllReduceRequest r;
  r.sizes = read_list<Bytes>(t.sizes, [](const std::string& word) {
    const Bytes b = parse_bytes(word, "--size");
    if (b.value == 0) throw Error("--size is 0; expected at least a byte", {}, ErrorKind::usage);
    return b;
  });
  r.ranks =
      read_list<int>(t.ranks, [](const std::string& w) { return parse_number<int>("--ranks", w, 1, 1024); });
  r.transports = read_list<std::string>(t.transports, [](const std::string& w) {
    index_of("--transport", w, {"threads", "mpi", "nccl"});
    return w;
  });
  r.algorithms = read_list<std::string>(t.algorithms, [](const std::string& w) {
    (void)parse_comm_algorithm(w, "--algorithm");
    return w;
  });
  r.dtypes = parse_dtypes(t.dtypes);
  r.warmups = parse_number<int>("--warmup", t.warmups, 1, 1000);
  r.samples = parse_number<int>("--samples", t.samples, 2, 10000);
  r.timeout = parse_number<double>("--comm-timeout", t.timeout, 0.1, 1e6);
  index_of("--sums", t.sums, {"auto", "ranked", "engine"});
  r.sums = t.sums;
  r.seed = common.seed;
  r.device = Device::parse(common.device);
  if (r.device.is_meta()) throw Error("meta moves nothing: there is nothing to time", {}, ErrorKind::usage);
  return r;
}

std::vector<std::string> lines_of(const BenchAllReduceReport& report) {
  std::vector<std::string> lines;
  for (const ordered_json& row : report.rows) {
    ordered_json line = {{"command", "bench allreduce"}};
    line.update(row);
    line["build_id"] = build_info().build_id;
    line["host"] = host_json(report);
    line["time"] = utc_now();
    lines.push_back(dump(line, -1));
  }
  return lines;
}

void run_bench_allreduce(const Typed& t, const CLI::App& app, const CommonOptions& common) {
  const PageFormat format = read_format(t.format, common.json);
  const bool charts = read_chart_export(t.exports);
  if (t.sweep->asked()) return run_bench_sweep(*t.sweep, app, common, format);
  BenchAllReduceRequest request = read_request(t, common);
  if (t.sweep->dry_run) return;
  BenchAllReduceReport report;
  {
    const StopOnSignals signals;
    const BenchProgress progress;
    request.stop = [] { return stop_requested().load(); };
    report = bench_allreduce(request, [&](const std::string& text) { progress(text); });
  }
  if (report.rows.empty() && !report.stopped) return;  // a rank other than the first
  prepare_results(common.out);
  std::fputs(allreduce_page(report, format).c_str(), stdout);
  append_results(common.out, lines_of(report));
  if (charts) write_allreduce_charts(common.out, report);
  for (const ordered_json& r : report.rows) {
    if (r.value("gate", "") == "failed")
      throw Error(fmt::format("{} {}, {} ranks, {}: {}", r.value("transport", ""), r.value("algorithm", ""),
                              r.value("ranks", 1), r.value("size", ""), r.value("reason", "")));
  }
  if (!report.any_timed() && !report.stopped)
    throw Error(fmt::format("nothing could be timed: {}", report.rows.front().value("reason", "")),
                report.hint.empty() ? "take a smaller --size or fewer --ranks" : report.hint, report.kind);
}

}  // namespace

std::function<bool()> add_bench_allreduce(CLI::App& app, const CommonOptions& common) {
  auto t = std::make_shared<Typed>();
  CLI::App* study = app.add_subcommand("allreduce", "Sums over ranks: time, bandwidth, and what bounds them");
  study->fallthrough();  // --json and its like belong to every command
  study->footer(
      "Lists give a row for each combination. It also takes --json, --seed, --device and --out, as every "
      "command does.\n\nExample:\n  kiln bench allreduce --size 1MB,10MB,100MB --ranks 2,4 --transport "
      "threads,mpi");
  study->add_option("--size", t->sizes, "Of the tensor (default 1MB,10MB,100MB,1GB)")->type_name("BYTES,...");
  study->add_option("--ranks", t->ranks, "How many (default 2,4,6)")->type_name("N,...");
  study->add_option("--transport", t->transports, "threads, mpi, nccl (default threads,mpi)")
      ->type_name("NAME,...");
  study->add_option("--algorithm", t->algorithms, "direct: the transport's own (default); ring; alternate")
      ->type_name("NAME,...");
  study->add_option("--dtype", t->dtypes, "fp32 (default), bf16, fp16, fp64")->type_name("NAME,...");
  study->add_option("--warmup", t->warmups, "Calls before the timed ones (default 5)")->type_name("N");
  study->add_option("--samples", t->samples, "Timed calls at most (default 30, fewer where they take long)")
      ->type_name("N");
  study
      ->add_option("--sums", t->sums,
                   "How mpi and nccl sum: ranked; engine: their own reductions; auto (default): ranked of "
                   "mpi, engine of nccl")
      ->type_name("NAME");
  study->add_option("--comm-timeout", t->timeout, "Seconds a rank waits for the others (default 60)")
      ->type_name("S");
  study->add_option("--export", t->exports, "svg or none (default): charts of the rows, into OUT/allreduce")
      ->type_name("NAME");
  study->add_option("--format", t->format, kFormatHelp)->type_name("NAME");
  t->sweep = add_sweep_options(study);
  return [t, study, &common] {
    if (study->parsed()) run_bench_allreduce(*t, *study, common);
    return study->parsed();
  };
}

}  // namespace kiln::cli
