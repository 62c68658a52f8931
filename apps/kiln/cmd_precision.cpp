// kiln precision: what number formats do to sums, to a small model's tensors and to a norm.
#include <cstdio>
#include <memory>

#include "base/error.h"
#include "dist/comm/reduce_ranks.h"
#include "kiln/bench_options.h"
#include "kiln/command.h"
#include "rows/result_log.h"
#include "studies/format.h"
#include "studies/precision/render.h"

namespace kiln::cli {
namespace {

constexpr const char* kHostNote = "It runs on the host.";
constexpr const char* kDeviceNote = "Its ops run on the device, its loops on the host.";

// A study: `options` declares those of its request, `run` makes its report, `page` renders it.
template <class Request, class Declare, class Run, class Page>
void add_study(Command& c, const CommonOptions& common, const char* note, Declare declare, Run run,
               Page page) {
  struct Asked {
    Request request;
    PageFormat format = PageFormat::text;
  };
  auto asked = std::make_shared<Asked>();
  c.note = note;
  declare(c, asked->request);
  add_page_options(c, asked->format);
  c.run = [asked, run, page, &c, &common] {
    const PageFormat format = page_format(c, asked->format, common);
    asked->request.seed = common.seed;
    prepare_results(common.out);
    const StudyPage made = page(run(asked->request));
    print_page(made, format, common.wide);
    append_results(common.out, {document_line(made.json)});
  };
}

void add_accumulate(Command& precision, const CommonOptions& common) {
  Command& c = precision.sub("accumulate", "one number added many times, in each pair of dtypes",
                             "kiln precision accumulate --count 1000 --value 0.01 --json");
  add_study<RunningSumRequest>(
      c, common, kHostNote,
      [](Command& c, RunningSumRequest& r) {
        c.opt("--count", r.count, between(1, 1'000'000), "additions");
        c.opt("--value", r.value, between(1e-7, 65504.0), "the number to add");
        c.opt("--runs", r.runs, between(2, 64), "runs of each stochastically rounded row");
      },
      running_sum_study, running_sum_page);
}

void add_toymodel(Command& precision, const CommonOptions& common) {
  Command& c = precision.sub("toymodel", "the dtype of every tensor of a small model under autocast",
                             "kiln precision toymodel --in 20 --classes 5 --json");
  add_study<ToyModelRequest>(
      c, common, kHostNote,
      [](Command& c, ToyModelRequest& r) {
        c.opt("--batch", r.batch, between(1, 4096), "batch size");
        c.opt("--in", r.in, between(1, 4096), "width of the input");
        c.opt("--classes", r.classes, between(2, 4096), "width of the logits");
      },
      toy_model_study, toy_model_page);
}

void add_layernorm(Command& precision, const CommonOptions& common) {
  Command& c = precision.sub("layernorm", "which part of LayerNorm fails in 16 bits, and at what scale",
                             "kiln precision layernorm --width 768 --json");
  add_study<LayerNormRequest>(
      c, common, kHostNote,
      [](Command& c, LayerNormRequest& r) {
        c.opt("--width", r.width, between(2, 16384), "elements of a row");
        c.opt("--rows", r.rows, between(1, 64), "rows to measure the error over");
      },
      layer_norm_study, layer_norm_page);
}

void add_accumulation(Command& precision, const CommonOptions& common) {
  Command& c =
      precision.sub("accumulation", "rounding error of training's sums in each dtype, and their cost",
                    "kiln precision accumulation --tokens 1024 --ranks 16 --steps 1000 --width 4096 --json");
  add_study<GradAccumulationRequest>(
      c, common, kDeviceNote,
      [](Command& c, GradAccumulationRequest& r) {
        c.opt("--batch", r.batch, between(1, 1024), "micro-batch size, rows");
        c.opt("--tokens", r.sums.tokens, between(2, 16384),
              "tokens that linear-cross-entropy's dW sums over");
        c.opt("--ranks", r.sums.ranks, between(2, kMaxThreadRanks), "ranks of the all-reduce");
        c.opt("--steps", r.sums.steps, between(1, 5000), "steps of Adam");
        c.opt("--width", r.sums.width, between(2, 65536), "scores of a softmax");
      },
      [&common](GradAccumulationRequest& r) {
        r.device = device_here(common);
        if (r.device.is_meta())
          throw Error("kiln precision accumulation needs numbers, and meta has none",
                      "use --device cpu or cuda", ErrorKind::usage);
        return grad_accumulation_study(r);
      },
      grad_accumulation_page);
}

}  // namespace

void add_precision(Command& c, const CommonOptions& common) {
  c.needs = "the name of a study";
  add_accumulate(c, common);
  add_toymodel(c, common);
  add_layernorm(c, common);
  add_accumulation(c, common);
}

}  // namespace kiln::cli
