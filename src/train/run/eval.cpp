#include "train/run/eval.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/units.h"
#include "data/token_files_text.h"
#include "data/token_folder.h"
#include "data/training_text.h"

namespace kiln {
namespace {

constexpr int64_t kDefaultContext = 1024;

// No larger than the text has windows: the rest of a batch would be memory for nothing.
int64_t batch_of(int64_t asked, const TokenSet& tokens, int64_t context) {
  int64_t windows = 0;
  for (const TokenShard& s : tokens.shards()) windows += (s.size() - 1) / context;
  return std::clamp<int64_t>(windows, 1, asked);
}

}  // namespace

void check_request(const EvalRequest& o) {
  check_model_request(o.model, "eval");
  if (o.text.empty())
    throw Error("kiln eval needs --text", "give a text file, a folder of them, or a folder of tokens",
                ErrorKind::usage);
}

EvalReport evaluate_text(const EvalRequest& o, const EvalProgress& progress) {
  check_request(o);
  const auto show = [&](const char* what, auto done, auto all, const std::string& detail) {
    progress(what, static_cast<double>(done) / static_cast<double>(all), detail);
  };
  RankContext ctx(rank_options(o.model, o.seed));
  const LoadedModel m = load_model(ctx, o.model, [&](uint64_t done, uint64_t all) {
    show("loading", done, all, fmt::format("{} of {}", human({done}), human({all})));
  });
  if (!m.tokenizer && !is_token_folder(o.text) && !is_token_files(o.text))
    throw Error(fmt::format("{} holds no tokenizer", m.folder),
                "name one: --tokenizer byte, or a tokenizer's file or folder", ErrorKind::usage);
  const EvaluationText text = read_evaluation_text(o.text, m.tokenizer, ctx.pool());
  if (text.tokenizer) check_vocabulary(*text.tokenizer, m);
  if (text.tokens->vocab_size() > m.config.model.vocab)
    throw Error(fmt::format("{} has ids up to {}, the model in {} has {} tokens", o.text,
                            text.tokens->vocab_size() - 1, m.folder, m.config.model.vocab),
                "give tokens of the model's own tokenizer, or the text itself");

  EvalReport report;
  report.folder = m.folder;
  report.device = ctx.device().str();
  report.threads = ctx.pool().threads();
  report.parameters = m.parameters;
  report.context = o.context.value_or(std::min(m.config.max_positions, kDefaultContext));
  check_context(m.config.model, report.context);
  const auto start = std::chrono::steady_clock::now();
  report.result =
      evaluate(ctx, *m.model, text.tokens, batch_of(o.batch, *text.tokens, report.context), report.context,
               o.batches, {text.tokenizer.get(), [&](int64_t done, int64_t all) {
                             show("evaluating", done, all, fmt::format("{} of {} windows", done, all));
                           }});
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

Json eval_json(const EvalRequest& o, const EvalReport& r) {
  const Evaluation& e = r.result;
  return {{"command", "eval"},
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
          {"bits_per_byte", e.bytes > 0 ? Json(e.bits_per_byte()) : Json(nullptr)},
          {"seconds", r.seconds},
          {"tokens_per_s", r.tokens_per_second()}};
}

std::string eval_text(const EvalReport& r) {
  const Evaluation& e = r.result;
  std::string text = fmt::format("loss {:.4f}, perplexity {:.3f}", e.loss, e.perplexity());
  if (e.bytes > 0) text += fmt::format(", {:.4f} bits per byte", e.bits_per_byte());
  const std::string bytes =
      e.bytes > 0 ? fmt::format(" ({} of text)", human({static_cast<std::size_t>(e.bytes)})) : "";
  return text + fmt::format("\n{} tokens{} in windows of {}, {:.0f} tokens a second\n", e.tokens, bytes,
                            r.context, r.tokens_per_second());
}

}  // namespace kiln
