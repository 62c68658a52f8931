#include "train/run/text_generator.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "autograd/host_floats.h"
#include "autograd/tape.h"
#include "data/utf8_stream.h"

namespace kiln {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// What the model sees of B texts of equal length, and the logits of what follows them.
class Window {
 public:
  Window(RankContext& ctx, const Model& model, const GenerateOptions& o, std::span<const int32_t> prompt)
      : ctx_(ctx), model_(model), B_(o.samples), texts_(static_cast<std::size_t>(B_)) {
    for (auto& text : texts_) text.assign(prompt.begin(), prompt.end());
    // No more memory than will be used.
    context_ = std::min(o.context, size() + o.tokens);
    begin_ = std::max<int64_t>(0, size() - context_);
    if (o.cache) cache_.emplace(ctx, model.config(), model.dtype(), B_, context_);
  }

  int64_t size() const { return static_cast<int64_t>(texts_[0].size()); }
  int64_t slides() const { return slides_; }

  void append(std::span<const int32_t> tokens) {  // one for each text
    for (std::size_t b = 0; b < texts_.size(); ++b) texts_[b].push_back(tokens[b]);
    if (size() - begin_ <= context_) return;
    begin_ = size() - std::max<int64_t>(1, context_ / 2);
    if (cache_) cache_->clear();
    ++slides_;
  }

  // [B, V], of the tokens that follow.
  std::vector<float> logits() {
    const int64_t known = cache_ ? cache_->length() : 0;
    const Tensor ids = upload(begin_ + known);
    if (cache_) return to_floats(model_.decode(ctx_, ids, *cache_));
    const GradModeGuard off(ctx_, GradMode::off);
    const Tensor all = model_.logits(ctx_, ids);  // [B, T, V]
    const int64_t T = all.dim(1), V = all.dim(2);
    std::vector<float> last;
    for (int64_t b = 0; b < B_; ++b) {
      const auto row = to_floats(all.narrow(0, b, 1).reshape({T, V}).narrow(0, T - 1, 1));
      last.insert(last.end(), row.begin(), row.end());
    }
    return last;
  }

 private:
  Tensor upload(int64_t from) {
    std::vector<int32_t> rows;
    for (const auto& text : texts_) rows.insert(rows.end(), text.begin() + from, text.end());
    const Tensor ids = ctx_.empty({B_, size() - from}, DType::i32, Tag::data);
    ctx_.upload(ids, rows.data());
    return ids;
  }

  std::vector<float> to_floats(const Tensor& t) {
    std::vector<float> values(static_cast<std::size_t>(t.numel()));
    download_floats(ctx_, t, values);
    return values;
  }

  RankContext& ctx_;
  const Model& model_;
  int64_t B_, context_ = 0;
  std::vector<std::vector<int32_t>> texts_;  // whole, though only [begin_, end) is seen
  int64_t begin_ = 0, slides_ = 0;
  std::optional<KvCache> cache_;
};

void check_options(const GenerateOptions& o) {
  const auto at_least_one = [](const char* what, int64_t value) {
    if (value < 1) throw Error(cat(what, " is ", value, "; expected 1 or more"), {}, ErrorKind::usage);
  };
  at_least_one("the number of tokens to make", o.tokens);
  at_least_one("the number of samples", o.samples);
  at_least_one("the context", o.context);
  check_sampler(o.sampling);
}

}  // namespace

double Generation::prefill_tokens_per_second() const {
  return prefill_seconds > 0 ? static_cast<double>(prefilled) / prefill_seconds : 0;
}

double Generation::decode_tokens_per_second() const {
  return decode_seconds > 0 ? static_cast<double>(decoded) / decode_seconds : 0;
}

Generation TextGenerator::generate(std::string_view prompt, const GenerateOptions& options,
                                   const TextSink& sink) {
  std::vector<int32_t> ids = tokenizer_.encode(prompt);
  if (ids.empty()) {
    const auto end = tokenizer_.specials().end_of_text();
    if (!end)
      throw Error("the prompt is empty, and the tokenizer has no end-of-text token to start from",
                  "give a prompt", ErrorKind::usage);
    ids.push_back(*end);
  }
  return generate(ids, options, sink);
}

Generation TextGenerator::generate(std::span<const int32_t> prompt, const GenerateOptions& options,
                                   const TextSink& sink) {
  check_options(options);
  if (ctx_.device().is_meta()) throw Error("a model on meta has no values to generate with");
  if (prompt.empty()) throw Error("generation needs at least one token to start from");
  const auto V = static_cast<std::size_t>(model_.config().vocab);
  // What the model has beyond the tokenizer's vocabulary is padding: no text stands for it.
  const std::size_t known = std::min(V, static_cast<std::size_t>(tokenizer_.vocab_size()));
  for (const int32_t id : prompt) {
    if (id < 0 || static_cast<std::size_t>(id) >= V)
      throw Error(cat("token ", id, " of the prompt is not in the model's vocabulary of ", V));
  }
  std::vector<int32_t> stop = options.stop;
  if (const auto end = tokenizer_.specials().end_of_text()) stop.push_back(*end);

  Generation result;
  result.prompt_tokens = static_cast<int64_t>(prompt.size());
  const auto B = static_cast<std::size_t>(options.samples);
  result.samples.resize(B);
  std::vector<Utf8Stream> shown(B);
  std::vector<int32_t> next(B, 0);  // one that has ended is fed anything: what follows is not read
  Sampler sampler(options.sampling, options.seed);
  const auto show = [&](std::size_t b, const std::string& piece) {
    result.samples[b].text += piece;
    if (sink && !piece.empty()) sink(static_cast<int64_t>(b), piece);
  };

  auto start = Clock::now();
  result.prefilled = std::min(result.prompt_tokens, options.context);
  Window window(ctx_, model_, options, prompt);
  std::vector<float> logits = window.logits();
  result.prefill_seconds = seconds_since(start);
  start = Clock::now();
  for (int64_t made = 0;; ++made) {
    bool all_ended = true;
    for (std::size_t b = 0; b < B; ++b) {
      GeneratedSample& sample = result.samples[b];
      if (sample.ended) continue;
      next[b] = sampler.pick({logits.data() + b * V, known}, b, static_cast<uint64_t>(window.size()));
      result.decoded += made > 0 ? 1 : 0;
      sample.ended = std::find(stop.begin(), stop.end(), next[b]) != stop.end();
      if (sample.ended) continue;
      all_ended = false;
      sample.tokens.push_back(next[b]);
      show(b, shown[b].push(tokenizer_.bytes_of(next[b])));
    }
    if (all_ended || made + 1 == options.tokens) break;
    window.append(next);
    logits = window.logits();
    ++result.steps;
  }
  result.decode_seconds = result.steps > 0 ? seconds_since(start) : 0;
  result.slides = window.slides();
  for (std::size_t b = 0; b < B; ++b) show(b, shown[b].finish());
  return result;
}

}  // namespace kiln
