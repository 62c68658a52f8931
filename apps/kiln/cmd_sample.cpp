// kiln sample: generates text from a prompt.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "base/units.h"
#include "kiln/command.h"
#include "kiln/console/progress.h"
#include "train/run/sample.h"

namespace kiln::cli {
namespace {

void run_sample(SampleRequest& request, const CommonOptions& common) {
  request.generate.seed = common.seed;
  request.model.device = common.device;
  check_request(request);
  const bool stream = !common.json && request.generate.samples == 1;
  auto bar = std::make_unique<ProgressBar>();
  bool begun = false;
  const TextSink sink = [&](int64_t, std::string_view piece) {
    if (!stream) return;
    if (!std::exchange(begun, true)) std::fputs(request.prompt.c_str(), stdout);
    std::fwrite(piece.data(), 1, piece.size(), stdout);
    std::fflush(stdout);
  };
  const SampleReport report = sample(request, sink, [&](uint64_t done, uint64_t all) {
    bar->show("loading", static_cast<double>(done) / static_cast<double>(all),
              fmt::format("{} of {}", human({done}), human({all})));
    if (done == all) bar = nullptr;  // its line must be gone before the text begins
  });
  if (common.json) {
    fmt::print("{}\n", sample_json(request, report).dump(2));
    return;
  }
  if (!stream) {
    for (std::size_t i = 0; i < report.generation.samples.size(); ++i)
      fmt::print("--- {}\n{}{}\n", i + 1, request.prompt, report.generation.samples[i].text);
  } else {
    if (!begun) std::fputs(request.prompt.c_str(), stdout);
    std::fputs("\n", stdout);
  }
  std::fflush(stdout);
  std::fputs(speed_text(report).c_str(), stderr);
}

}  // namespace

void add_sample(Command& c, const CommonOptions& common) {
  struct Asked {
    SampleRequest request;
    bool no_cache = false;
  };
  auto asked = std::make_shared<Asked>();
  SampleRequest& r = asked->request;
  SamplerOptions& sampler = r.generate.sampling;
  add_loaded_model_options(c.options, r.model);
  c.opt("--prompt", r.prompt, "prompt").value("TEXT").unset("none");
  c.opt("--tokens", r.generate.tokens, between(1, 1 << 30), "maximum tokens to generate");
  c.opt("--temperature", sampler.temperature, between(0.0, 1e6), "sampling temperature; 0: greedy");
  c.opt("--top-k", sampler.top_k, between<int64_t>(1, int64_t{1} << 31),
        "top-k: sample from the N likeliest tokens")
      .unset("all");
  c.opt("--top-p", sampler.top_p, between(1e-12, 1.0),
        "top-p: sample from the fewest tokens whose probabilities sum to this");
  c.opt("--samples", r.generate.samples, between(1, 4096), "number of texts to generate, as one batch");
  c.opt("--ctx,--context", r.context, between(1, 1 << 24), "context window, tokens")
      .unset("what config.json says");
  c.opt("--no-cache", asked->no_cache, "recompute the whole context for every token, without a KV cache");
  c.opt("--bos", r.bos, "prepend the model's beginning-of-text token to the prompt");
  c.run = [asked, &common] {
    asked->request.generate.cache = !asked->no_cache;
    run_sample(asked->request, common);
  };
}

}  // namespace kiln::cli
