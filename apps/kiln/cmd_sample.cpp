// kiln sample: a model goes on with a text.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "kiln/cmd.h"
#include "base/parse_number.h"
#include "kiln/console/progress.h"
#include "train/run/sample.h"

namespace kiln::cli {
namespace {

using nlohmann::ordered_json;

// As typed; read_options makes numbers of them.
struct Typed {
  SampleRequest request;
  std::string tokens, temperature, top_k, top_p, samples, context, threads;
  bool no_cache = false;
};

SampleRequest read_options(const Typed& t, const CommonOptions& common) {
  SampleRequest r = t.request;
  read_number<int64_t>("--tokens", t.tokens, 1, int64_t{1} << 30, r.generate.tokens);
  read_number<int64_t>("--samples", t.samples, 1, 4096, r.generate.samples);
  read_number<double>("--temperature", t.temperature, 0.0, 1e6, r.generate.sampling.temperature);
  read_number<int64_t>("--top-k", t.top_k, 1, int64_t{1} << 31, r.generate.sampling.top_k);
  read_number<double>("--top-p", t.top_p, 1e-12, 1.0, r.generate.sampling.top_p);
  read_number<int64_t>("--context", t.context, 1, int64_t{1} << 24, r.context);
  read_number<int>("--threads", t.threads, 1, 1024, r.model.threads);
  r.generate.cache = !t.no_cache;
  r.generate.seed = common.seed;
  r.model.device = common.device;
  check_request(r);
  return r;
}

std::string to_json(const SampleRequest& r, const SampleReport& report) {
  const Generation& g = report.generation;
  auto samples = ordered_json::array();
  for (const GeneratedSample& s : g.samples)
    samples.push_back({{"text", s.text}, {"tokens", s.tokens}, {"ended", s.ended}});
  const auto known = [](double x) { return x > 0 ? ordered_json(x) : ordered_json(nullptr); };
  const ordered_json page = {{"checkpoint", report.folder},
                             {"parameters", report.parameters},
                             {"precision", r.model.precision},
                             {"device", report.device},
                             {"threads", report.threads},
                             {"prompt", r.prompt},
                             {"prompt_tokens", g.prompt_tokens},
                             {"text", g.samples[0].text},
                             {"tokens", g.samples[0].tokens.size()},
                             {"samples", samples},
                             {"seed", r.generate.seed},
                             {"temperature", r.generate.sampling.temperature},
                             {"top_k", r.generate.sampling.top_k > 0 ? ordered_json(r.generate.sampling.top_k)
                                                                     : ordered_json(nullptr)},
                             {"top_p", r.generate.sampling.top_p},
                             {"context", report.context},
                             {"slides", g.slides},
                             {"cache", r.generate.cache},
                             {"load_s", report.load_seconds},
                             {"prefill_s", g.prefill_seconds},
                             {"decode_s", g.decode_seconds},
                             {"prefill_tokens_per_s", g.prefill_tokens_per_second()},
                             {"decode_tokens_per_s", known(g.decode_tokens_per_second())},
                             {"bytes_per_step", report.weight_bytes + report.cache_bytes},
                             {"copy_bytes_per_s", known(report.copy_rate)},
                             {"predicted_tokens_per_s", known(report.predicted_tokens_per_second())}};
  return page.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string speed_text(const SampleReport& report) {
  const Generation& g = report.generation;
  std::string text =
      fmt::format("prefill {} tokens, {:.0f} a second", g.prompt_tokens, g.prefill_tokens_per_second());
  if (g.steps > 0)
    text += fmt::format("; decode {} tokens, {:.1f} a second", g.decoded, g.decode_tokens_per_second());
  if (g.slides > 0) text += fmt::format("; the context was full {} time(s)", g.slides);
  text += "\n";
  if (report.copy_rate > 0)
    text += fmt::format(
        "a step reads {} of weights and {} of cache: {:.1f} a second at the copy rate of {}/s\n",
        human({static_cast<std::size_t>(report.weight_bytes)}),
        human({static_cast<std::size_t>(report.cache_bytes)}), report.predicted_tokens_per_second(),
        human({static_cast<std::size_t>(report.copy_rate)}));
  return text;
}

void run_sample(const Typed& typed, const CommonOptions& common) {
  const SampleRequest request = read_options(typed, common);
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
    std::fputs(to_json(request, report).c_str(), stdout);
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

CommandBody add_sample(CLI::App& app, const CommonOptions& common) {
  auto t = std::make_shared<Typed>();
  SampleRequest& r = t->request;
  app.add_option("--checkpoint", r.model.checkpoint, "A folder with config.json, safetensors, tokenizer.json")
      ->type_name("DIR");
  app.add_option("--prompt", r.prompt, "What to go on with (default: nothing, a new text)")
      ->type_name("TEXT");
  app.add_option("--tokens", t->tokens, "Tokens to make at most (default 100)")->type_name("N");
  app.add_option("--temperature", t->temperature, "0: always the most likely token (default 1)")
      ->type_name("X");
  app.add_option("--top-k", t->top_k, "Draw from the N most likely tokens only")->type_name("N");
  app.add_option("--top-p", t->top_p, "Draw from the fewest tokens that have this probability together")
      ->type_name("X");
  app.add_option("--samples", t->samples, "Texts to make, all at once (default 1)")->type_name("N");
  app.add_option("--context", t->context, "Tokens the model sees at once (default: what config.json says)")
      ->type_name("N");
  app.add_flag("--no-cache", t->no_cache, "Compute the whole context again for every token");
  app.add_flag("--bos", r.bos, "Put the model's beginning-of-text token before the prompt");
  app.add_option("--tokenizer", r.model.tokenizer, "byte, or a tokenizer's file or folder (default: DIR's)")
      ->type_name("NAME");
  app.add_option("--precision", r.model.precision, "fp32 (default) or bf16: what it computes in")
      ->type_name("NAME");
  app.add_option("--variant", r.model.variants, "attention=naive,linear=packed,...")
      ->type_name("OP=NAME,...");
  app.add_option("--threads", t->threads, "Of the CPU (default all)")->type_name("N");
  return [t, &common] { run_sample(*t, common); };
}

}  // namespace kiln::cli
