// kiln eval: how well a model predicts a text.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "data/token_folder.h"
#include "data/training_text.h"
#include "kiln/cmd.h"
#include "train/run/load_model.h"
#include "base/parse_number.h"
#include "kiln/console/progress.h"
#include "train/run/evaluate.h"

namespace kiln::cli {
namespace {

using nlohmann::ordered_json;

struct EvalOptions {
  ModelRequest model;
  std::string text;
  int64_t context = 0;  // 0: the model's, at most kDefaultContext
  int64_t batch = 4, batches = kAllBatches;

  // As typed.
  std::string typed_context, typed_batch, typed_batches, threads;
};

constexpr int64_t kDefaultContext = 1024;

void read_options(EvalOptions& o, const CommonOptions& common) {
  read_number<int64_t>("--context", o.typed_context, 1, int64_t{1} << 24, o.context);
  read_number<int64_t>("--batch", o.typed_batch, 1, 1 << 20, o.batch);
  read_number<int>("--threads", o.threads, 1, 1024, o.model.threads);
  if (!o.typed_batches.empty() && o.typed_batches != "all") {
    try {
      o.batches = parse_number<int64_t>("--batches", o.typed_batches, 1, int64_t{1} << 40);
    } catch (const Error&) {
      throw Error(fmt::format("--batches is '{}'; expected a number from 1 on, or all", o.typed_batches), {},
                  ErrorKind::usage);
    }
  }
  o.model.device = common.device;
  check_model_request(o.model, "eval");
  if (o.text.empty())
    throw Error("kiln eval needs --text", "give a text file, a folder of them, or a folder of tokens",
                ErrorKind::usage);
}

struct EvalReport {
  std::string folder, device;
  int threads = 1;
  int64_t parameters = 0, context = 0;
  Evaluation result;
  double seconds = 0;

  double tokens_per_second() const { return static_cast<double>(result.tokens) / seconds; }
};

EvalReport run(const EvalOptions& o, uint64_t seed) {
  ProgressBar bar;
  const auto show = [&](const char* what, auto done, auto all, const std::string& detail) {
    bar.show(what, static_cast<double>(done) / static_cast<double>(all), detail);
  };
  RankContext ctx(rank_options(o.model, seed));
  const LoadedModel m = load_model(ctx, o.model, [&](uint64_t done, uint64_t all) {
    show("loading", done, all, fmt::format("{} of {}", human({done}), human({all})));
  });
  if (!m.tokenizer && !is_token_folder(o.text))
    throw Error(fmt::format("{} holds no tokenizer", m.folder),
                "name one: --tokenizer byte, or a tokenizer's file or folder", ErrorKind::usage);
  const EvaluationText text = read_evaluation_text(o.text, m.tokenizer, ctx.pool());
  check_vocabulary(*text.tokenizer, m);

  EvalReport report;
  report.folder = m.folder;
  report.device = ctx.device().str();
  report.threads = ctx.pool().threads();
  report.parameters = m.parameters;
  report.context = o.context > 0 ? o.context : std::min(m.config.max_positions, kDefaultContext);
  const auto start = std::chrono::steady_clock::now();
  report.result = evaluate(ctx, *m.model, text.tokens, o.batch, report.context, o.batches,
                           {text.tokenizer.get(), [&](int64_t done, int64_t all) {
                              show("evaluating", done, all, fmt::format("{} of {} windows", done, all));
                            }});
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

std::string to_json(const EvalOptions& o, const EvalReport& r) {
  const Evaluation& e = r.result;
  const ordered_json page = {
      {"checkpoint", r.folder},
      {"text", o.text},
      {"parameters", r.parameters},
      {"precision", o.model.precision},
      {"device", r.device},
      {"threads", r.threads},
      {"context", r.context},
      {"batch", o.batch},
      {"tokens", e.tokens},
      {"bytes", e.bytes},
      {"loss", e.loss},
      {"perplexity", e.perplexity()},
      {"bits_per_byte", e.bytes > 0 ? ordered_json(e.bits_per_byte()) : ordered_json(nullptr)},
      {"seconds", r.seconds},
      {"tokens_per_s", r.tokens_per_second()}};
  return page.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string to_text(const EvalReport& r) {
  const Evaluation& e = r.result;
  std::string text = fmt::format("loss {:.4f}, perplexity {:.3f}", e.loss, e.perplexity());
  if (e.bytes > 0) text += fmt::format(", {:.4f} bits per byte", e.bits_per_byte());
  return text + fmt::format("\n{} tokens ({} of text) in windows of {}, {:.0f} tokens a second\n", e.tokens,
                            human({static_cast<std::size_t>(e.bytes)}), r.context, r.tokens_per_second());
}

}  // namespace

CommandBody add_eval(CLI::App& app, const CommonOptions& common) {
  auto o = std::make_shared<EvalOptions>();
  app.add_option("--checkpoint", o->model.checkpoint,
                 "A folder with config.json, safetensors, tokenizer.json")
      ->type_name("DIR");
  app.add_option("--text", o->text, "A text file, a folder of them, or a folder that kiln tokenize made")
      ->type_name("PATH");
  app.add_option("--context", o->typed_context, "Tokens of a window (default: the model's, at most 1024)")
      ->type_name("N");
  app.add_option("--batch", o->typed_batch, "Windows at a time (default 4)")->type_name("N");
  app.add_option("--batches", o->typed_batches, "How many of those, or all (default)")->type_name("N|all");
  app.add_option("--tokenizer", o->model.tokenizer, "byte, or a tokenizer's file or folder (default: DIR's)")
      ->type_name("NAME");
  app.add_option("--precision", o->model.precision, "fp32 (default) or bf16: what it computes in")
      ->type_name("NAME");
  app.add_option("--variant", o->model.variants, "attention=naive,...")->type_name("OP=NAME,...");
  app.add_option("--threads", o->threads, "Of the CPU (default all)")->type_name("N");
  return [o, &common] {
    read_options(*o, common);
    const EvalReport report = run(*o, common.seed);
    std::fputs((common.json ? to_json(*o, report) : to_text(report)).c_str(), stdout);
  };
}

}  // namespace kiln::cli
