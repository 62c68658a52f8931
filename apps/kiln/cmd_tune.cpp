// kiln tune: the fastest algorithm for each GEMM of a training step, by measurement, into a file that --tune
// of other commands reads; kiln tune attention: the fastest tiles for shapes of attention.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "base/error.h"
#include "kiln/bench_options.h"
#include "kiln/command.h"
#include "kiln/console/progress.h"
#include "ops/renamed.h"
#include "studies/attention/attention.h"
#include "studies/attention/cell_options.h"
#include "studies/tune/render.h"

namespace kiln::cli {
namespace {

struct Asked {
  TuneRequest request;
  ModelOptions model = {.sizes = {"small"}};
};

struct AskedTiles {
  TuneAttentionRequest request;
  CellOptions cells = {
      .grid =
          {.batch = 1, .heads = 16, .seqs = {4096}, .ds = {64, 128}, .dtypes = {DType::bf16}, .causal = true},
      .table = CellTable::automatic};
  int iters = 50;
  double seconds = 2;
};

const TuneNote kSay = [](const std::string& line) { fmt::print(stderr, "{}\n", line); };

void run_tune(Asked& asked, const CommonOptions& common) {
  TuneRequest& request = asked.request;
  request.sizes = models_of(asked.model);
  request.seed = common.seed;
  request.device = device_here(common);
  TuneReport report;
  {
    const BenchProgress progress;
    report = tune(request, common.out, [&](const std::string& text) { progress(text); }, kSay);
  }
  std::fputs(written(tune_page(report), common.json ? PageFormat::json : PageFormat::text).c_str(), stdout);
}

// They would be taken and mean nothing.
void refuse_options_of_tune(const Options& options) {
  for (const Option& o : options.all()) {
    if (!o.given().empty())
      throw Error(fmt::format("{} belongs to `kiln tune` alone, which tunes GEMMs", o.name()),
                  "see `kiln tune attention --help` for its options", ErrorKind::usage);
  }
}

void fill_request(AskedTiles& asked, const Command& command, const CommonOptions& common) {
  TuneAttentionRequest& r = asked.request;
  r.cells = cells_of(asked.cells, command.options);
  AttentionRequest named;
  named.variants = {r.variant};
  check_attention_request(named);
  r.device = device_here(common);
  r.clock.flush = flush_bytes(r.device);
  r.clock.timing = {.warmups = 3,
                    .min_samples = asked.iters,
                    .max_samples = asked.iters,
                    .min_seconds = 0,
                    .max_seconds = asked.seconds};
  r.seed = common.seed;
}

// Ends in an error where tiles gave a wrong result, or no shape has any: the page has said what could be
// measured.
void report_failures(const TuneAttentionReport& report) {
  bool any = false;
  for (const TunedCell& cell : report.cells) {
    any = any || !cell.tiles.empty();
    for (const TunedTiles& t : cell.tiles) {
      if (!t.error.empty())
        throw Error(fmt::format("[attention] {} with tiles of {} on {}: {}", cell.variant,
                                t.candidate.tiles.str(), cell.cell.str(), t.error));
    }
  }
  if (any) return;
  const TunedCell& first = report.cells.front();
  throw Error(fmt::format("nothing to tune: {}: {}", first.cell.str(), first.reason), {},
              ErrorKind::unavailable);
}

void run_tune_attention(AskedTiles& asked, const Command& command, const CommonOptions& common) {
  refuse_options_of_tune(command.parent->options);
  fill_request(asked, command, common);
  TuneAttentionReport report;
  {
    const BenchProgress progress;
    report =
        tune_attention(asked.request, common.out, [&](const std::string& text) { progress(text); }, kSay);
  }
  std::fputs(written(tune_attention_page(report), common.json ? PageFormat::json : PageFormat::text).c_str(),
             stdout);
  report_failures(report);
}

void add_tune_attention(Command& tune, const CommonOptions& common) {
  auto asked = std::make_shared<AskedTiles>();
  Command& c = tune.sub("attention", "tiles of attention's forward pass, by shape",
                        "kiln tune attention --table steps --device cuda");
  c.note = "With --device meta:cuda it lists the tiles and runs nothing.";
  c.opt("--table", asked->cells.table, kCellTables,
        "cells: steps (of training steps, packed q, k, v); tokens16k (16,384 tokens 2048 wide); grid (of the "
        "sizes given)")
      .unset("steps, or grid where a size is given");
  add_cell_options(c.options, asked->cells);
  c.opt("--variant", asked->request.variant, "variant to tune; auto: the one a run takes")
      .was_values(former_names_in);
  c.opt("--iters", asked->iters, between(1, 1 << 20), "timed calls");
  c.opt("--seconds", asked->seconds, between(0.001, 1e6), "time limit for one row");
  c.run = [asked, &c, &common] { run_tune_attention(*asked, c, common); };
}

}  // namespace

void add_tune(Command& c, const CommonOptions& common) {
  auto asked = std::make_shared<Asked>();
  TuneRequest& r = asked->request;
  add_model_options(c.options, asked->model, /*several=*/true);
  c.opt("--ctx,--context", r.contexts, between(1, 1 << 24), "sequence length");
  c.opt("--precision,--dtype", r.precisions, list_form(precision_form()), "{}")
      .offers(precision_names())
      .value("NAME,...");
  c.opt("--batch", r.batch, between(1, 1 << 20), "micro-batch size");
  c.opt("--grad-accum", r.micro_steps, between(1, 1 << 16), "gradient accumulation: micro-steps of a step")
      .was("--micro-steps,--accumulate");
  c.opt("--variant", r.variants, "op variants: attention=naive,qkv=split,...")
      .value("OP=NAME,...")
      .was_values(former_names_in);
  c.opt("--recompute", r.recompute, recompute_form(), kRecomputeHelp);
  c.run = [asked, &common] { run_tune(*asked, common); };
  add_tune_attention(c, common);
}

}  // namespace kiln::cli
