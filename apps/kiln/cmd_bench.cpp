// kiln bench: timed studies. Today: `kiln bench op NAME`.
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/nearest_name.h"
#include "device/gpu_info.h"
#include "kiln/bench_op.h"
#include "kiln/bench_pages.h"
#include "kiln/cmd.h"
#include "kiln/one_line.h"
#include "kiln/require_gpu.h"
#include "report/result_log.h"

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
};

std::vector<std::string> split_at_commas(std::string_view text) {
  std::vector<std::string> items;
  for (;;) {
    const auto comma = text.find(',');
    items.emplace_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return items;
    text = text.substr(comma + 1);
  }
}

// One of `names`, or Error(usage) with the nearest.
std::size_t index_of(std::string_view option, std::string_view seen,
                     const std::vector<std::string_view>& names) {
  const auto found = std::find(names.begin(), names.end(), seen);
  if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
  const std::string near = nearest_name(seen, names);
  throw Error(fmt::format("{} is '{}'", option, seen),
              near.empty() ? fmt::format("it takes {}", fmt::join(names, ", "))
                           : fmt::format("did you mean '{}'?", near),
              ErrorKind::usage);
}

std::vector<DType> parse_dtypes(std::string_view text) {
  const std::vector<DType> known = {DType::f32, DType::bf16, DType::f16, DType::f64};
  std::vector<std::string_view> names;
  names.reserve(known.size());
  for (DType t : known) names.push_back(name_of(t));
  std::vector<DType> dtypes;
  for (const std::string& item : split_at_commas(text)) {
    const DType dtype = known[index_of("--dtype", item, names)];
    if (std::find(dtypes.begin(), dtypes.end(), dtype) == dtypes.end()) dtypes.push_back(dtype);
  }
  return dtypes;
}

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

int parse_threads(const std::string& text) {
  constexpr int kMost = 1024;
  int n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc{} || end != text.data() + text.size() || n < 0 || n > kMost) {
    throw Error(
        fmt::format("--threads is '{}'; expected a whole number from 1 to {}, or 0 for all", text, kMost), {},
        ErrorKind::usage);
  }
  return n;
}

// One line of stderr that is written over, where there is a terminal to see it.
class Progress {
 public:
  void operator()(const std::string& text) {
    if (!terminal_) return;
    winsize window{};
    const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0;
    const int room = known ? window.ws_col - 1 : 79;  // a line that wraps would not be written over
    std::fprintf(stderr, "\r\x1b[K%.*s", room, one_line(text).c_str());
    std::fflush(stderr);
  }
  ~Progress() { (*this)(""); }
  Progress() = default;
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

 private:
  bool terminal_ = ::isatty(STDERR_FILENO) == 1;
};

void run_bench_op(const BenchOpOptions& options, const CommonOptions& common) {
  if (options.name.empty()) {
    std::string names;
    for (const OpBench& b : all_op_benches()) names += (names.empty() ? "" : ", ") + b.op;
    throw Error("kiln bench op needs the name of an op", fmt::format("there are {}", names),
                ErrorKind::usage);
  }
  if (common.json && !options.format.empty())
    throw Error("--format and --json are both given; expected one of them", {}, ErrorKind::usage);
  if (!options.format.empty()) index_of("--format", options.format, {"table", "md", "csv"});

  BenchOpRequest request{.bench = find_op_bench(options.name),
                         .shapes = {},
                         .dtypes = parse_dtypes(options.dtypes),
                         .variants = {},
                         .forms = {},
                         .device = {}};
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
  append_results(common.out, {});  // is there a place for them? Better said now than after minutes
  BenchReport report;
  {
    Progress progress;
    report = bench_op(request, [&](const std::string& text) { progress(text); });
  }
  const std::string page = common.json               ? bench_json(report)
                           : options.format == "md"  ? bench_markdown(report)
                           : options.format == "csv" ? bench_csv(report)
                                                     : bench_text(report);
  std::fputs(page.c_str(), stdout);
  append_results(common.out, result_lines(report, fmt::format("bench op {}", options.name)));
  if (report.any_wrong())
    throw Error(
        fmt::format("[{}] a variant is further from naive than it may be; it was not timed", report.op));
  if (!report.any_timed()) {
    throw Error(
        fmt::format("[{}] nothing could be timed: {} ({}): {}", report.op, report.rows.front().variant,
                    report.rows.front().device, report.rows.front().reason),
        {}, ErrorKind::unavailable);
  }
}

}  // namespace

CommandBody add_bench(CLI::App& app, const CommonOptions& common) {
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
  op->add_option("--format", options->format, "table, md or csv (default table)")->type_name("NAME");
  return [options, op, &common] {
    if (!op->parsed())
      throw Error("kiln bench needs the name of a study: op", "see `kiln bench --help`", ErrorKind::usage);
    run_bench_op(*options, common);
  };
}

}  // namespace kiln::cli
