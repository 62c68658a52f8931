#include "kiln/cmd_bench_attention.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/error.h"
#include "device/gpu_info.h"
#include "studies/attention/attention.h"
#include "kiln/bench_attention_options.h"
#include "kiln/bench_attention_pages.h"
#include "kiln/bench_options.h"
#include "kiln/sweep_options.h"
#include "base/parse_number.h"
#include "device/require_gpu.h"
#include "kiln/console/stop_on_signals.h"
#include "train/run/tuned.h"
#include "ops/op_list.h"
#include "rows/result_log.h"

namespace kiln::cli {
namespace {

struct Typed : TypedCells {
  std::string variants = "naive,auto", iters, seconds, memory, tune = "auto", warmup, threads = "0", format;
  const CLI::Option* variant_option = nullptr;
  std::shared_ptr<SweepOptions> sweep;
};

std::vector<std::string> read_variants(const std::string& text, DeviceType device) {
  std::vector<std::string> names;
  for (const std::string& word : split_at_commas(text)) {
    if (word.empty())
      throw Error(fmt::format("--variant is '{}', which holds an empty name", text),
                  "name variants, or say auto or all", ErrorKind::usage);
    if (word != "all") {
      names.push_back(word);
      continue;
    }
    const std::vector<OpListing> ops = list_ops();
    for (const VariantListing& v : find_op(ops, "attention").variants) {
      if (v.device == device) names.push_back(v.name);
    }
    names.emplace_back("auto");
  }
  return names;
}

// What all three studies read alike.
AttentionRequest common_request(const Typed& t, const CommonOptions& common) {
  (void)read_format(t.format, common.json);
  AttentionRequest r;
  r.stop = [] { return stop_requested().load(); };
  r.threads = parse_threads(t.threads);
  r.seed = common.seed;
  if (!t.memory.empty()) r.memory_cap = parse_bytes(t.memory, "--memory");
  std::string why_no_gpu;
  const std::vector<GpuInfo> gpus = list_gpus(&why_no_gpu);
  require_gpu(common.device, gpus, why_no_gpu);
  r.device = Device::parse(common.device);
  r.variants = read_variants(t.variants, r.device.target);
  if (const auto tuning = find_tuning(t.tune, common.out, tune_place(r.device),
                                      [](const std::string& line) { fmt::print(stderr, "{}\n", line); }))
    r.choices.use(tuning->attention);
  r.skip_slow = t.variant_option->count() == 0;
  check_attention_request(r);
  return r;
}

// `iters` samples, unless they take more than `seconds`.
TimingOptions timing_of(const Typed& t, int iters, double seconds) {
  read_number<int>("--iters", t.iters, 1, 1 << 20, iters);
  read_number<double>("--seconds", t.seconds, 0.001, 1e6, seconds);
  return {.warmups = 3, .min_samples = iters, .max_samples = iters, .min_seconds = 0, .max_seconds = seconds};
}

void run_study(const AttentionRequest& request, const Typed& t, const CommonOptions& common) {
  const bool meta = request.device.is_meta();
  if (t.sweep->dry_run) return;
  if (!meta) prepare_results(common.out);
  AttentionReport report;
  {
    const StopOnSignals signals;
    const BenchProgress progress;
    report = bench_attention(request, [&](const std::string& text) { progress(text); });
  }
  std::fputs(attention_page(report, read_format(t.format, common.json)).c_str(), stdout);
  if (!meta) append_results(common.out, attention_result_lines(report));
  using Status = AttentionRow::Status;
  for (Status status : {Status::wrong, Status::failed}) {
    if (const AttentionRow* row = report.first(status))
      throw Error(fmt::format("[attention] {}, {}: {}", row->variant, row->cell.str(), row->reason));
  }
  if (report.stopped) return;
  if (report.first(Status::timed) != nullptr || report.first(Status::planned) != nullptr) return;
  const AttentionRow& row = report.rows.front();
  const bool full = row.status == Status::no_memory;
  throw Error(
      fmt::format("[attention] nothing could be timed: {}, {}: {}", row.variant, row.cell.str(), row.reason),
      full ? "take a smaller --seq or --batch" : "", full ? ErrorKind::failed : ErrorKind::unavailable);
}

void add_common(CLI::App* app, Typed& t) {
  app->fallthrough();  // --json and its like belong to every command
  t.variant_option =
      app->add_option("--variant,--impl", t.variants,
                      fmt::format("Names, all, or auto: what a run takes (default {})", t.variants))
          ->type_name("NAME,...");
  app->add_option("--tune", t.tune,
                  "Tiles: a file of kiln tune, off, or auto (default): the one for this GPU in --out, if any")
      ->type_name("FILE");
  app->add_option("--memory", t.memory, "As if the device had no more: 24GiB")->type_name("SIZE");
  app->add_option("--threads", t.threads, "Of the CPU (default all)")->type_name("N");
  app->add_option("--format", t.format, kFormatHelp)->type_name("NAME");
  t.sweep = add_sweep_options(app);
}

void add_sizes(CLI::App* app, Typed& t, const char* seqs, const char* ds, const char* dtypes) {
  app->add_option("--seq", t.seqs, fmt::format("Tokens of a sequence (default {}); A..B doubles", seqs))
      ->type_name("N,...");
  app->add_option("--d", t.ds, fmt::format("Width of a head (default {})", ds))->type_name("N,...");
  app->add_option("--dtype", t.dtypes, fmt::format("fp32, bf16, fp16, fp64 (default {})", dtypes))
      ->type_name("NAME,...");
}

void add_numbers(CLI::App* app, Typed& t, const char* batch, const char* heads) {
  app->add_option("--batch", t.batch, fmt::format("Sequences (default {})", batch))->type_name("N");
  app->add_option("--heads", t.heads, fmt::format("Of each sequence (default {})", heads))->type_name("N");
}

constexpr const char* kAlso =
    "It also takes --json, --seed, --device and --out, as every command does; on --device meta:cuda it says "
    "what memory each cell needs, and runs nothing.\n\nExample:\n  ";

// `study` is `app` itself, or the last of several names.
std::function<bool()> when_parsed(CLI::App* app, CLI::App* study, const std::shared_ptr<Typed>& t,
                                  const CommonOptions& common, std::function<void()> run) {
  return [=, &common, run = std::move(run)] {
    if (app->parsed() && study->parsed() && t->sweep->asked()) {
      run_bench_sweep(*t->sweep, *study, common, read_format(t->format, common.json));
    } else if (app->parsed()) {
      run();
    }
    return app->parsed();
  };
}

}  // namespace

std::function<bool()> add_bench_attention(CLI::App& app, const CommonOptions& common) {
  auto t = std::make_shared<Typed>();
  CLI::App* study = app.add_subcommand("attention", "Attention over width and length: time, and memory kept");
  study->footer(fmt::format("{}kiln bench attention --seq 256,1024 --d 64 --dtype fp32,bf16", kAlso));
  add_numbers(study, *t, "8", "1");
  add_sizes(study, *t, "256,1024,4096,8192,16384", "16,32,64,128", "fp32");
  study->add_flag("--causal", t->causal, "Each token sees those before it (default: all see all)");
  study->add_option("--iters", t->iters, "Timed passes, each waited for (default 100)")->type_name("N");
  study->add_option("--seconds", t->seconds, "Most for one pass of a row (default 10)")->type_name("X");
  add_common(study, *t);
  return when_parsed(study, study, t, common, [t, &common] {
    AttentionRequest r = common_request(*t, common);
    r.command = "bench attention";
    r.table = "attention";
    r.cells = grid_cells(read_grid(*t, {.batch = 8,
                                        .heads = 1,
                                        .seqs = {256, 1024, 4096, 8192, 16384},
                                        .ds = {16, 32, 64, 128},
                                        .dtypes = {DType::f32},
                                        .causal = false}));
    r.passes = {AttentionPass::forward, AttentionPass::backward};
    r.clock.wait_each = true;
    r.clock.timing = timing_of(*t, 100, 10);
    r.laws = true;
    run_study(r, *t, common);
  });
}

std::function<bool()> add_bench_flash(CLI::App& app, const CommonOptions& common) {
  auto t = std::make_shared<Typed>();
  t->table = "grid";
  CLI::App* study = app.add_subcommand("flash", "Attention's kernels with a cold cache, beside their floor");
  study->footer(fmt::format("{}kiln bench flash --table tokens16k --d 128 --json", kAlso));
  study
      ->add_option(
          "--table", t->table,
          "grid (default: batch 1, one head, causal); tokens16k: 16,384 tokens 2048 wide; steps: what "
          "training steps call, from packed q, k, v")
      ->type_name("NAME");
  add_numbers(study, *t, "1", "1");
  add_sizes(study, *t, "128..65536", "16..128", "bf16,fp32; other tables bf16");
  study->add_flag("--causal", t->causal, "Each token sees those before it (the grid's default)");
  study->add_flag("--full", t->full, "All see all");
  study->add_option("--iters", t->iters, "Timed calls (default 50)")->type_name("N");
  study->add_option("--seconds", t->seconds, "Most for one pass of a row (default 2)")->type_name("X");
  add_common(study, *t);
  return when_parsed(study, study, t, common, [t, &common] {
    AttentionRequest r = common_request(*t, common);
    r.command = "bench flash";
    r.table = t->table;
    r.cells = read_table(*t, {.batch = 1,
                              .heads = 1,
                              .seqs = read_doubling("--seq", "128..65536", kLongestSequence),
                              .ds = read_doubling("--d", "16..128", kWidestHead),
                              .dtypes = {DType::bf16, DType::f32},
                              .causal = true});
    r.passes = {AttentionPass::forward, AttentionPass::backward, AttentionPass::both};
    r.clock.flush = flush_bytes(r.device);
    r.clock.timing = timing_of(*t, 50, 2);
    run_study(r, *t, common);
  });
}

std::function<bool()> add_bench_leaderboard(CLI::App& app, const CommonOptions& common) {
  constexpr double kH100Datasheet = 989e12;  // FLOP/s, bf16, dense; an H200 has the same
  auto t = std::make_shared<Typed>();
  t->variants = "auto";
  CLI::App* board = app.add_subcommand("leaderboard", "Figures that are compared elsewhere: flash");
  board->fallthrough();
  CLI::App* study =
      board->add_subcommand("flash", "16 heads of 64, 16,384 tokens, bf16, causal, forward and backward");
  study->footer(fmt::format("{}kiln bench leaderboard flash --variant all", kAlso));
  add_numbers(study, *t, "1", "16");
  add_sizes(study, *t, "16384", "64", "bf16");
  study->add_option("--warmup", t->warmup, "Seconds before the clock starts (default 1)")->type_name("X");
  study->add_option("--seconds", t->seconds, "Seconds of timed calls (default 10)")->type_name("X");
  add_common(study, *t);
  return when_parsed(board, study, t, common, [t, study, &common] {
    if (!study->parsed())
      throw Error("kiln bench leaderboard needs the name of one", "there is flash", ErrorKind::usage);
    AttentionRequest r = common_request(*t, common);
    r.command = "bench leaderboard flash";
    r.table = "leaderboard";
    r.cells = grid_cells(read_grid(
        *t, {.batch = 1, .heads = 16, .seqs = {16384}, .ds = {64}, .dtypes = {DType::bf16}, .causal = true}));
    r.passes = {AttentionPass::both};
    r.clock.flush = flush_bytes(r.device);
    double seconds = 10;
    r.clock.warmup_seconds = 1;
    read_number<double>("--warmup", t->warmup, 0.0, 1e4, r.clock.warmup_seconds);
    read_number<double>("--seconds", t->seconds, 0.001, 1e4, seconds);
    // What is written between calls takes its time too; slow devices stop after twice as long in all.
    r.clock.timing = {.warmups = 1,
                      .min_samples = 10,
                      .max_samples = 1 << 20,
                      .min_seconds = seconds,
                      .max_seconds = 2 * seconds};
    r.datasheet = kH100Datasheet;
    run_study(r, *t, common);
  });
}

}  // namespace kiln::cli
