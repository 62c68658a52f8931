// kiln residuals: what forward keeps for backward, per op and per block.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "base/error.h"
#include "device/gpu_info.h"
#include "kiln/bench_check.h"
#include "kiln/bench_options.h"
#include "kiln/cmd.h"
#include "base/parse_number.h"
#include "device/require_gpu.h"
#include "kiln/residuals_pages.h"

namespace kiln::cli {
namespace {

struct Typed {
  std::string op, shape, dtype = "fp32", variants, size, presets = "baseline,optimized";
  std::string batch, ctx, heads, layers, threads = "0";
  bool block = false;
};

Device read_device(const CommonOptions& common) {
  std::string why_no_gpu;
  const std::vector<GpuInfo> gpus = list_gpus(&why_no_gpu);
  require_gpu(common.device, gpus, why_no_gpu);
  return Device::parse(common.device);
}

std::string run_op(const Typed& t, const CommonOptions& common) {
  ResidualsOpRequest r;
  r.bench = find_op_bench(t.op);
  if (!has_backward(r.bench))
    throw Error(fmt::format("[{}] has no backward, so it keeps nothing for one", r.bench.op), {},
                ErrorKind::usage);
  r.shape = parse_residual_shape(r.bench, t.shape);
  (void)r.bench.make(r.shape);  // do its sizes go together?
  const std::vector<DType> dtypes = parse_dtypes(t.dtype);
  if (dtypes.size() != 1)
    throw Error(fmt::format("--dtype is '{}'; expected one", t.dtype), {}, ErrorKind::usage);
  r.dtype = dtypes.front();
  r.device = read_device(common);
  r.threads = parse_threads(t.threads);
  r.seed = common.seed;
  if (!t.variants.empty() && t.variants != "all") {
    std::vector<std::string_view> names;
    const std::vector<OpListing> ops = list_ops();
    for (const VariantListing& v : find_op(ops, r.bench.op).variants) {
      if (v.device == r.device.target) names.push_back(v.name);
    }
    r.variants = read_list<std::string>(t.variants, [&](const std::string& word) {
      index_of("--variant", word, names);
      return word;
    });
  }
  const ResidualsOpReport report = op_residuals(r);
  return common.json ? residuals_op_json(report) : residuals_op_text(report);
}

std::string run_block(const Typed& t, const CommonOptions& common) {
  ResidualsBlockRequest r;
  const ModelSize size = read_sizes(t.size.empty() ? "xl26" : t.size, "").front();
  r.size = size.name;
  ModelConfig& m = r.block.model;
  m = config_of(size);
  m.vocab = std::min<int64_t>(m.vocab, 1024);  // of the head and the embedding nothing is asked here
  read_number<int64_t>("--heads", t.heads, 1, 1 << 16, m.heads);
  if (!t.heads.empty()) m.kv_heads = m.heads;
  read_number<int64_t>("--layers", t.layers, 1, 1 << 12, m.layers);
  check_config(m);
  read_number<int64_t>("--batch", t.batch, 1, 1 << 20, r.block.batch);
  r.block.context = 2048;
  read_number<int64_t>("--ctx", t.ctx, 1, 1 << 24, r.block.context);
  r.block.precision = parse_precision("--dtype", t.dtype);
  r.presets = read_list<std::string>(t.presets, [](const std::string& word) {
    index_of("--preset", word, {"baseline", "optimized"});
    return word;
  });
  r.variants = t.variants;
  r.block.rank = options_for(read_device(common), parse_threads(t.threads), common.seed);
  const ResidualsBlockReport report = block_report(r);
  return common.json ? residuals_block_json(report) : residuals_block_text(report);
}

}  // namespace

CommandBody add_residuals(CLI::App& app, const CommonOptions& common) {
  auto t = std::make_shared<Typed>();
  app.add_option("--op", t->op, "An op of kiln ops: what each of its variants keeps")->type_name("NAME");
  app.add_option("--shape", t->shape, "Sizes: 4,512,2560, or by name as in kiln bench op")
      ->type_name("N,...");
  app.add_flag("--block", t->block, "One transformer block instead, one column for each preset");
  app.add_option("--size", t->size, "With --block: a model of kiln sizes (default xl26)")->type_name("NAME");
  app.add_option("--batch", t->batch, "With --block: sequences (default 4)")->type_name("N");
  app.add_option("--ctx,--context", t->ctx, "With --block: tokens of a sequence (default 2048)")
      ->type_name("N");
  app.add_option("--heads", t->heads, "With --block: another number of heads")->type_name("N");
  app.add_option("--layers", t->layers, "With --block: another number of blocks")->type_name("N");
  app.add_option("--preset", t->presets, "With --block: baseline, optimized or both (default)")
      ->type_name("NAME,...");
  app.add_option("--dtype,--precision", t->dtype,
                 "fp32 (default), bf16, fp16; with --block also autocast, pure-bf16")
      ->type_name("NAME");
  app.add_option("--variant", t->variants,
                 "Of an op: fused,composed (default all); of a block, on top: attention=naive,...")
      ->type_name("NAME,...");
  app.add_option("--threads", t->threads, "Of the CPU (default all)")->type_name("N");
  return [t, &common] {
    if (t->block == !t->op.empty())
      throw Error(t->block ? "--op and --block are both given; expected one of them"
                           : "kiln residuals needs --op NAME or --block",
                  "kiln residuals --op rms_norm --shape 4,512,2560", ErrorKind::usage);
    if (t->block && !t->shape.empty())
      throw Error("--shape is given with --block", "a block has --batch and --ctx", ErrorKind::usage);
    std::fputs((t->block ? run_block(*t, common) : run_op(*t, common)).c_str(), stdout);
  };
}

}  // namespace kiln::cli
