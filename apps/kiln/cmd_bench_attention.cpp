// kiln bench attention, flash and leaderboard: attention, timed by itself.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "base/choice.h"
#include "base/error.h"
#include "kiln/bench_commands.h"
#include "kiln/bench_options.h"
#include "kiln/console/progress.h"
#include "kiln/console/stop_on_signals.h"
#include "kiln/sweep_options.h"
#include "ops/op_list.h"
#include "ops/renamed.h"
#include "rows/result_log.h"
#include "studies/attention/cell_options.h"
#include "studies/attention/render.h"
#include "train/run/tuned.h"

namespace kiln::cli {
namespace {

struct Asked {
  AttentionRequest request = {.variants = {"naive", "auto"}};
  CellOptions cells;
  int iters = 0;  // timed calls; 0: as many as `seconds` hold
  double seconds = 0;
  std::string tune = "auto";
  PageFormat format = PageFormat::text;
  SweepOptions sweep;
};

// "all" is every variant of the device, and what a run takes.
std::vector<std::string> named_variants(const std::vector<std::string>& words, DeviceType device) {
  std::vector<std::string> names;
  for (const std::string& word : words) {
    if (word.empty())
      throw Error(fmt::format("--variant is '{}', which holds an empty name", joined(words)),
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

// `iters` samples, unless they take more than `seconds`. Without a count, for so many seconds: what is
// written between calls takes its time too, so slow devices stop after twice as long altogether.
TimingOptions timing_of(const Asked& asked) {
  if (asked.iters > 0)
    return {.warmups = 3,
            .min_samples = asked.iters,
            .max_samples = asked.iters,
            .min_seconds = 0,
            .max_seconds = asked.seconds};
  return {.warmups = 1,
          .min_samples = 10,
          .max_samples = 1 << 20,
          .min_seconds = asked.seconds,
          .max_seconds = 2 * asked.seconds};
}

void fill_request(Asked& asked, const Command& command, const CommonOptions& common) {
  AttentionRequest& r = asked.request;
  r.cells = cells_of(asked.cells, command.options);
  r.stop = [] { return stop_requested().load(); };
  r.seed = common.seed;
  r.device = device_here(common);
  r.skip_slow = command.options.find("--variant")->given().empty();
  r.variants = named_variants(r.variants, r.device.target);
  if (!r.clock.wait_each) r.clock.flush = flush_bytes(r.device);
  r.clock.timing = timing_of(asked);
  r.clock.timing.stop = r.stop;
  if (const auto tuning = find_tuning(asked.tune, common.out, tune_place(r.device),
                                      [](const std::string& line) { fmt::print(stderr, "{}\n", line); }))
    r.choices.use(tuning->attention);
  check_attention_request(r);
}

// Ends in an error where a row is wrong or failed, or nothing was timed: the page has said what could be.
void report_failures(const AttentionReport& report) {
  if (const AttentionRow* row = report.first(RowStatus::failed))
    throw Error(fmt::format("[attention] {}, {}: {}", row->variant, row->cell.str(), row->reason));
  if (report.stopped) return;
  if (report.first(RowStatus::ok) != nullptr || report.first(RowStatus::modelled) != nullptr) return;
  const AttentionRow& row = report.rows.front();
  const bool full = row.status == RowStatus::oom;
  throw Error(
      fmt::format("[attention] nothing could be timed: {}, {}: {}", row.variant, row.cell.str(), row.reason),
      full ? "take a smaller --seq or --batch" : "", full ? ErrorKind::failed : ErrorKind::unavailable);
}

void run_study(Asked& asked, const Command& command, const CommonOptions& common) {
  const PageFormat format = page_format(command, asked.format, common);
  if (asked.sweep.asked()) return run_bench_sweep(asked.sweep, swept(command, common), common, format);
  const AttentionRequest& request = asked.request;
  fill_request(asked, command, common);
  const bool meta = request.device.is_meta();
  if (asked.sweep.dry_run) return;
  if (!meta) prepare_results(common.out);
  AttentionReport report;
  {
    const StopOnSignals signals;
    const BenchProgress progress;
    report = bench_attention(request, [&](const std::string& text) { progress(text); });
  }
  print_page(attention_page(report, common.wide), format, common.wide);
  if (!meta) append_results(common.out, attention_result_lines(report));
  report_failures(report);
}

TextForm<Bytes> memory_form() {
  return {[](const std::string& text) { return parse_bytes(text, "--memory"); },
          [](const Bytes& b) { return b.value == SIZE_MAX ? std::string() : std::to_string(b.value); }};
}

// What the three studies have in common, behind their own.
void add_options(Command& c, const std::shared_ptr<Asked>& asked, const CommonOptions& common) {
  AttentionRequest& r = asked->request;
  c.opt("--variant", r.variants, "variants by name, all, or auto: the one a run takes")
      .was("--impl")
      .was_values(former_names_in);
  if (asked->iters > 0) c.opt("--iters", asked->iters, between(1, 1 << 20), "timed calls");
  c.opt("--seconds", asked->seconds, between(0.001, 1e6),
        asked->iters > 0 ? "time limit for one pass of a row" : "seconds of timed calls");
  c.opt("--tune", asked->tune,
        "tiles: file of kiln tune, off, or auto: the one for this GPU in --out, if any")
      .value("FILE");
  c.opt("--memory", r.memory_cap, memory_form(), "memory limit of the device: 24GiB")
      .value("SIZE")
      .unset("all of it");
  c.opt("--threads", r.threads, thread_range(), "CPU threads").unset("all");
  add_page_options(c, asked->format);
  add_sweep_options(c, asked->sweep);
  c.note = "With --device meta:cuda it prints each cell's memory and runs nothing.";
  c.run = [asked, &c, &common] {
    if (asked->request.table.empty())
      asked->request.table = name_of_value<CellTable>(asked->cells.table, kCellTables);
    run_study(*asked, c, common);
  };
}

}  // namespace

void add_bench_attention(Command& bench, const CommonOptions& common) {
  auto asked = std::make_shared<Asked>();
  asked->request.command = "bench attention";
  asked->request.table = "attention";
  asked->request.passes = {AttentionPass::forward, AttentionPass::backward};
  asked->request.clock.wait_each = true;
  asked->request.scaling_fits = true;
  asked->cells.grid = {.batch = 8,
                       .heads = 1,
                       .seqs = {256, 1024, 4096, 8192, 16384},
                       .ds = {16, 32, 64, 128},
                       .dtypes = {DType::f32},
                       .causal = false};
  asked->iters = 100;
  asked->seconds = 10;
  Command& c = bench.sub("attention", "attention over width and length: time, and memory kept for backward",
                         "kiln bench attention --seq 256,1024 --d 64 --dtype fp32,bf16");
  add_cell_options(c.options, asked->cells);
  add_options(c, asked, common);
}

void add_bench_flash(Command& bench, const CommonOptions& common) {
  auto asked = std::make_shared<Asked>();
  asked->request.command = "bench flash";
  asked->request.passes = {AttentionPass::forward, AttentionPass::backward, AttentionPass::both};
  asked->cells.grid = {.batch = 1,
                       .heads = 1,
                       .seqs = read_doubling("--seq", "128..65536", kLongestSequence),
                       .ds = read_doubling("--d", "16..128", kWidestHead),
                       .dtypes = {DType::bf16, DType::f32},
                       .causal = true};
  asked->iters = 50;
  asked->seconds = 2;
  Command& c = bench.sub("flash", "attention's kernels with a cold cache, against their roofline",
                         "kiln bench flash --table tokens16k --d 128 --json");
  c.opt("--table", asked->cells.table, kCellTables,
        "cells: grid (of the sizes given); tokens16k (16,384 tokens 2048 wide); steps (of training steps, "
        "packed q, k, v); the tables' default dtype is bf16");
  add_cell_options(c.options, asked->cells);
  add_options(c, asked, common);
}

void add_bench_leaderboard(Command& bench, const CommonOptions& common) {
  constexpr double kH100Datasheet = 989e12;  // FLOP/s, bf16, dense; an H200 has the same
  auto asked = std::make_shared<Asked>();
  AttentionRequest& r = asked->request;
  r.command = "bench leaderboard flash";
  r.table = "leaderboard";
  r.variants = {"auto"};
  r.passes = {AttentionPass::both};
  r.datasheet = kH100Datasheet;
  r.clock.warmup_seconds = 1;
  asked->cells.grid = {
      .batch = 1, .heads = 16, .seqs = {16384}, .ds = {64}, .dtypes = {DType::bf16}, .causal = true};
  asked->seconds = 10;
  Command& board = bench.sub("leaderboard", "figures published elsewhere: flash",
                             "kiln bench leaderboard flash --variant all");
  board.needs = "the name of one";
  Command& c = board.sub("flash", "16 heads of 64, 16,384 tokens, bf16, causal, forward and backward",
                         "kiln bench leaderboard flash --variant all");
  add_cell_options(c.options, asked->cells);
  c.opt("--warmup", r.clock.warmup_seconds, between(0.0, 1e4), "warm-up, seconds");
  add_options(c, asked, common);
}

}  // namespace kiln::cli
