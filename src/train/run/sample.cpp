#include "train/run/sample.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/units.h"
#include "perf/timing/ceilings.h"

namespace kiln {
namespace {

std::vector<int32_t> prompt_tokens(const SampleRequest& r, const LoadedModel& m) {
  std::vector<int32_t> ids = m.tokenizer->encode(r.prompt);
  if (r.bos) {
    if (!m.config.bos)
      throw Error(cat("--bos: config.json of ", m.folder, " names no bos_token_id"),
                  "leave it out, or write the token into the prompt", ErrorKind::usage);
    ids.insert(ids.begin(), static_cast<int32_t>(*m.config.bos));
  }
  return ids;
}

// A memory's rate says nothing about weights that stay in the CPU's cache.
double measured_copy_rate(RankContext& ctx, double bytes_per_step) {
  if (ctx.device().type != DeviceType::cpu ||
      bytes_per_step < 2 * static_cast<double>(last_level_cache_bytes()))
    return 0;
  return measure_cpu_ceilings(ctx.pool(), ctx.traits().isa, {.one_thread = false, .flops = false}).copy.all;
}

}  // namespace

double SampleReport::predicted_tokens_per_second() const {
  return copy_rate / (weight_bytes + cache_bytes) * static_cast<double>(generation.samples.size());
}

void check_request(const SampleRequest& r) {
  check_model_request(r.model, "sample");
  check_sampler(r.generate.sampling);
}

SampleReport sample(const SampleRequest& r, const TextSink& sink, const WeightProgress& progress) {
  check_request(r);
  const auto start = std::chrono::steady_clock::now();
  RankContext ctx(rank_options(r.model, r.generate.seed));
  const LoadedModel m = load_model(ctx, r.model, progress);
  if (!m.tokenizer)
    throw Error(cat(m.folder, " holds no tokenizer"),
                "name one: --tokenizer byte, or a tokenizer's file or folder", ErrorKind::usage);

  SampleReport report;
  report.folder = m.folder;
  report.device = ctx.device().str();
  report.threads = ctx.pool().threads();
  report.parameters = m.parameters;
  const ModelConfig& model = m.config.model;
  report.context = r.context.value_or(model.window > 0 ? std::min(model.window, m.config.max_positions)
                                                       : m.config.max_positions);
  check_context(model, report.context);
  report.load_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();

  GenerateOptions options = r.generate;
  options.context = report.context;
  for (const int64_t id : m.config.eos) options.stop.push_back(static_cast<int32_t>(id));
  TextGenerator generator(ctx, *m.model, *m.tokenizer);
  const std::vector<int32_t> prompt = prompt_tokens(r, m);
  report.generation =
      prompt.empty() ? generator.generate("", options, sink) : generator.generate(prompt, options, sink);

  const Generation& g = report.generation;
  const int64_t seen = std::min(report.context, g.prompt_tokens + g.steps / 2);  // about half way
  report.weight_bytes = static_cast<double>(m.weight_bytes_per_step());
  if (options.cache)
    report.cache_bytes =
        static_cast<double>(KvCache::bytes(m.config.model, m.model->dtype(), options.samples, seen));
  if (options.cache && g.steps > 0) report.copy_rate = measured_copy_rate(ctx, report.weight_bytes);
  return report;
}

Json sample_json(const SampleRequest& r, const SampleReport& report) {
  const Generation& g = report.generation;
  auto samples = Json::array();
  for (const GeneratedSample& s : g.samples)
    samples.push_back({{"text", s.text}, {"tokens", s.tokens}, {"ended", s.ended}});
  const auto known = [](double x) { return x > 0 ? Json(x) : Json(nullptr); };
  return {{"command", "sample"},
          {"checkpoint", report.folder},
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
          {"top_k", r.generate.sampling.top_k > 0 ? Json(r.generate.sampling.top_k) : Json(nullptr)},
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

}  // namespace kiln
