// kiln tune: the fastest algorithm for each matrix product of a training step, by measurement, into a file
// that --tune of other commands reads. `kiln tune attention` is in cmd_tune_attention.cpp.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "base/error.h"
#include "device/gpu_info.h"
#include "kiln/bench_options.h"
#include "kiln/cmd.h"
#include "kiln/cmd_tune_attention.h"
#include "base/parse_number.h"
#include "device/require_gpu.h"
#include "studies/tune/tune.h"

namespace kiln::cli {
namespace {

struct Typed {
  std::string sizes = "small", contexts = "512", dtypes = "bf16";
  std::string batch, vocab, micro_steps, variants, recompute = "none";
};

TuneRequest read_request(const Typed& t, const CommonOptions& common) {
  TuneRequest r;
  r.sizes = read_sizes(t.sizes, t.vocab);
  r.contexts = read_list<int64_t>(
      t.contexts, [](const std::string& word) { return parse_number<int64_t>("--ctx", word, 1, 1 << 24); });
  r.precisions = read_list<Precision>(
      t.dtypes, [](const std::string& word) { return parse_precision("--dtype", word); });
  r.variants = t.variants;
  r.recompute = parse_recompute("--recompute", t.recompute);
  read_number<int64_t>("--batch", t.batch, 1, 1 << 20, r.batch);
  read_number<int>("--micro-steps", t.micro_steps, 1, 1 << 16, r.micro_steps);
  r.seed = common.seed;
  std::string why_no_gpu;
  require_gpu(common.device, list_gpus(&why_no_gpu), why_no_gpu);
  r.device = Device::parse(common.device);
  return r;
}

void run_tune(const Typed& typed, const CommonOptions& common) {
  const TuneRequest request = read_request(typed, common);
  TuneReport report;
  {
    const BenchProgress progress;
    report = tune(
        request, common.out, [&](const std::string& text) { progress(text); },
        [](const std::string& line) { fmt::print(stderr, "{}\n", line); });
  }
  std::fputs((common.json ? tune_json(report) : tune_page(report)).c_str(), stdout);
}

}  // namespace

CommandBody add_tune(CLI::App& app, const CommonOptions& common) {
  auto t = std::make_shared<Typed>();
  app.add_option("--size", t->sizes, "Models by the names of kiln sizes (default small)")
      ->type_name("NAME,...");
  app.add_option("--ctx,--context", t->contexts, "Tokens of a sequence (default 512)")->type_name("N,...");
  app.add_option("--dtype,--precision", t->dtypes, "bf16 (default), fp32, autocast, pure-bf16, fp16")
      ->type_name("NAME,...");
  app.add_option("--batch", t->batch, "Sequences of a micro-step (default 4)")->type_name("N");
  app.add_option("--vocab", t->vocab, "Tokens of the vocabulary (default as the size has it)")
      ->type_name("N");
  app.add_option("--micro-steps,--accumulate", t->micro_steps,
                 "Of a step (default 1); with more, weight gradients add up")
      ->type_name("N");
  app.add_option("--variant", t->variants, "As the run will have it: attention=naive,qkv=split,...")
      ->type_name("OP=NAME,...");
  app.add_option("--recompute", t->recompute, "none (default), block, every:k or nested")->type_name("NAME");
  const std::function<bool()> attention = add_tune_attention(app, common);
  return [t, attention, &common] {
    if (!attention()) run_tune(*t, common);
  };
}

}  // namespace kiln::cli
