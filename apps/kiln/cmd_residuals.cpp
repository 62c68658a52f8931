// kiln residuals: what forward keeps for backward, per op and per block.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "base/choice.h"
#include "base/error.h"
#include "kiln/bench_options.h"
#include "kiln/command.h"
#include "model/model_options.h"
#include "ops/renamed.h"
#include "rows/result_log.h"
#include "studies/format.h"
#include "studies/residuals/render.h"
#include "studies/variant_check.h"

namespace kiln::cli {
namespace {

struct Asked {
  std::string op, shape, dtype = "fp32", variants;
  bool block = false;
  ModelOptions model = {.sizes = {"xl26"}};
  ResidualsBlockRequest of_block;
  int threads = 0;
  PageFormat format = PageFormat::text;
};

StudyPage op_page(const Asked& asked, const CommonOptions& common) {
  ResidualsOpRequest r;
  r.bench = find_op_bench(asked.op);
  if (!has_backward(r.bench))
    throw Error(fmt::format("[{}] has no backward, so it keeps nothing for one", r.bench.op), {},
                ErrorKind::usage);
  r.shape = parse_residual_shape(r.bench, asked.shape);
  (void)r.bench.make(r.shape);  // do its sizes fit each other?
  const std::vector<DType> dtypes = parse_dtypes(asked.dtype);
  if (dtypes.size() != 1)
    throw Error(fmt::format("--dtype is '{}'; expected one", asked.dtype), {}, ErrorKind::usage);
  r.dtype = dtypes.front();
  r.device = device_here(common);
  r.threads = asked.threads;
  r.seed = common.seed;
  r.variants = read_variants("--variant", r.bench.op, asked.variants, r.device.target);
  return residuals_op_page(op_residuals(r));
}

StudyPage block_page(const Asked& asked, const CommonOptions& common) {
  ResidualsBlockRequest r = asked.of_block;
  const NamedModel model = model_of(asked.model);
  r.size = model.name;
  const CompileMode compile = r.block.model.compile;
  r.block.model = model.config;
  r.block.model.compile = compile;
  if (!asked.model.vocab)  // of the head and the embedding nothing is asked here
    r.block.model.vocab = std::min<int64_t>(r.block.model.vocab, 1024);
  r.block.precision = parse_precision("--dtype", asked.dtype);
  r.variants = asked.variants;
  r.block.rank = options_for(device_here(common), asked.threads, common.seed);
  return residuals_block_page(block_report(r));
}

void run_residuals(const Asked& asked, const Command& command, const CommonOptions& common) {
  const PageFormat format = page_format(command, asked.format, common);
  if (asked.block == !asked.op.empty())
    throw Error(asked.block ? "--op and --block are both given; expected one of them"
                            : "kiln residuals needs --op NAME or --block",
                "kiln residuals --op rms_norm --shape 4,512,2560", ErrorKind::usage);
  if (asked.block && !asked.shape.empty())
    throw Error("--shape is given with --block", "a block has --batch and --ctx", ErrorKind::usage);
  prepare_results(common.out);
  const StudyPage page = asked.block ? block_page(asked, common) : op_page(asked, common);
  print_page(page, format, common.wide);
  append_results(common.out, {document_line(page.json)});
}

}  // namespace

void add_residuals(Command& c, const CommonOptions& common) {
  auto asked = std::make_shared<Asked>();
  ResidualsBlockRequest& r = asked->of_block;
  c.note =
      "An op has --shape; a block has the options of a model, --batch, --ctx and --preset. There is no "
      "--grad-accum: what is saved is of one micro-step.";
  c.opt("--op", asked->op, "op of `kiln ops`, one row per variant").value("NAME").was_values(former_names_in);
  c.opt("--shape", asked->shape, "shape of the op: 4,512,2560, or by name as in `kiln bench op`")
      .value("N,...");
  c.opt("--block", asked->block, "a transformer block instead of an op, one column per preset");
  add_model_options(c.options, asked->model, /*several=*/false);
  c.opt("--batch", r.block.batch, between(1, 1 << 20), "micro-batch size");
  c.opt("--ctx,--context", r.block.context, between(1, 1 << 24), "sequence length");
  c.opt("--compile", r.block.model.compile, compile_form(), kCompileHelp).offers(compile_mode_names());
  c.opt("--preset", r.presets, presets_form(), "{}").offers(preset_words()).unset("both");
  c.opt("--dtype,--precision", asked->dtype, "fp32, bf16 or fp16; with --block also autocast, pure-bf16");
  c.opt("--variant", asked->variants,
        "an op's variants: fused,composed; with --block, on top of each preset: attention=naive,...")
      .value("NAME,...")
      .was_values(former_names_in)
      .unset("all");
  c.opt("--threads", asked->threads, thread_range(), "CPU threads").unset("all");
  add_page_options(c, asked->format);
  c.run = [asked, &c, &common] { run_residuals(*asked, c, common); };
}

}  // namespace kiln::cli
