#include "kiln/cmd_tune_attention.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "base/error.h"
#include "device/gpu_info.h"
#include "studies/attention/attention.h"
#include "kiln/bench_attention_options.h"
#include "kiln/bench_options.h"
#include "base/parse_number.h"
#include "device/require_gpu.h"
#include "studies/tune/tune_attention.h"

namespace kiln::cli {
namespace {

struct Typed : TypedCells {
  std::string variant = "auto", iters, seconds;
};

// Sizes alone mean a grid of their own; nothing at all, the shapes of the training steps.
std::vector<AttentionCell> read_cells(Typed t) {
  const bool sizes = !t.batch.empty() || !t.heads.empty() || !t.seqs.empty() || !t.ds.empty();
  if (t.table.empty()) t.table = sizes ? "grid" : "steps";
  return read_table(
      t, {.batch = 1, .heads = 16, .seqs = {4096}, .ds = {64, 128}, .dtypes = {DType::bf16}, .causal = true});
}

// Options of `kiln tune` that stand before or behind the word would be taken and mean nothing.
void refuse_options_of_tune(const CLI::App& tune) {
  for (const char* name :
       {"--size", "--ctx", "--dtype", "--batch", "--vocab", "--micro-steps", "--variant", "--recompute"}) {
    if (tune.get_option(name)->count() > 0)
      throw Error(fmt::format("{} belongs to `kiln tune` alone, which tunes matrix products", name),
                  "see `kiln tune attention --help` for what goes behind attention", ErrorKind::usage);
  }
}

TuneAttentionRequest read_request(const Typed& t, const CommonOptions& common) {
  TuneAttentionRequest r;
  r.cells = read_cells(t);
  r.variant = t.variant;
  int iters = 50;
  double seconds = 2;
  read_number<int>("--iters", t.iters, 1, 1 << 20, iters);
  read_number<double>("--seconds", t.seconds, 0.001, 1e6, seconds);
  AttentionRequest named;
  named.variants = {t.variant};
  check_attention_request(named);
  std::string why_no_gpu;
  require_gpu(common.device, list_gpus(&why_no_gpu), why_no_gpu);
  r.device = Device::parse(common.device);
  r.clock.flush = flush_bytes(r.device);
  r.clock.timing = {
      .warmups = 3, .min_samples = iters, .max_samples = iters, .min_seconds = 0, .max_seconds = seconds};
  r.seed = common.seed;
  return r;
}

void run(const Typed& typed, const CommonOptions& common) {
  const TuneAttentionRequest request = read_request(typed, common);
  TuneAttentionReport report;
  {
    const BenchProgress progress;
    report = tune_attention(
        request, common.out, [&](const std::string& text) { progress(text); },
        [](const std::string& line) { fmt::print(stderr, "{}\n", line); });
  }
  std::fputs((common.json ? tune_attention_json(report) : tune_attention_page(report)).c_str(), stdout);
  bool any = false;
  for (const TunedCell& cell : report.cells) {
    any = any || !cell.tiles.empty();
    for (const TunedTiles& t : cell.tiles) {
      if (!t.error.empty())
        throw Error(fmt::format("[attention] {} with tiles of {} on {}: {}", cell.variant,
                                t.candidate.tiles.str(), cell.cell.str(), t.error));
    }
  }
  if (!any)
    throw Error(
        fmt::format("nothing to tune: {}: {}", report.cells.front().cell.str(), report.cells.front().reason),
        {}, ErrorKind::unavailable);
}

}  // namespace

std::function<bool()> add_tune_attention(CLI::App& tune, const CommonOptions& common) {
  auto t = std::make_shared<Typed>();
  tune.require_subcommand(0, 1);
  CLI::App* app = tune.add_subcommand("attention", "Tiles of attention's forward pass on shapes of its own");
  app->fallthrough();  // --json and its like belong to every command
  app->footer(
      "It also takes --json, --seed, --device and --out, as every command does; on --device meta:cuda it "
      "lists "
      "the tiles there are, and runs nothing.\n\nExample:\n  kiln tune attention --table steps --device "
      "cuda");
  app->add_option("--table", t->table,
                  "steps (default): what training steps call, from packed q, k, v; tokens16k: 16,384 tokens "
                  "2048 wide; grid: as the sizes say")
      ->type_name("NAME");
  app->add_option("--batch", t->batch, "Sequences (grid; default 1)")->type_name("N");
  app->add_option("--heads", t->heads, "Of each sequence (grid; default 16)")->type_name("N");
  app->add_option("--seq", t->seqs, "Tokens of a sequence (grid: default 4096; else which of the table's)")
      ->type_name("N,...");
  app->add_option("--d", t->ds, "Width of a head (grid: default 64,128; else which of the table's)")
      ->type_name("N,...");
  app->add_option("--dtype", t->dtypes, "bf16, fp16 (default bf16)")->type_name("NAME,...");
  app->add_flag("--causal", t->causal, "Each token sees those before it (the grid's default)");
  app->add_flag("--full", t->full, "All see all");
  app->add_option("--variant", t->variant, "Whose tiles (default auto: the variant a run takes)")
      ->type_name("NAME");
  app->add_option("--iters", t->iters, "Timed calls (default 50)")->type_name("N");
  app->add_option("--seconds", t->seconds, "Most for one row (default 2)")->type_name("X");
  return [t, app, &tune, &common] {
    if (!app->parsed()) return false;
    refuse_options_of_tune(tune);
    run(*t, common);
    return true;
  };
}

}  // namespace kiln::cli
