// Generates from a prompt. Works on the live model of a training run as well as on one from disk: it
// needs the rank, the model and its tokenizer, records nothing and changes nothing.
//
// The model sees a window of at most `context` tokens. When it is full, the first part is dropped: the last
// half of the window is read again as a new text, from position 0 on, and generation continues behind it. So
// a text can be longer than the context, at the cost of one prefill per half window.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer.h"
#include "model/model.h"
#include "model/sampler.h"

namespace kiln {

struct GenerateOptions {
  int64_t tokens = 100;   // of each sample, at most
  int64_t samples = 1;    // one batch: one reading of the weights serves all of them
  int64_t context = 256;  // context window, tokens
  SamplerOptions sampling = {};
  uint64_t seed = 0;
  bool cache = true;               // off: every token computes the whole window again; the same text, slowly
  std::vector<int32_t> stop = {};  // ids that end a sample, besides the tokenizer's end of text
};

struct GeneratedSample {
  std::string text;             // valid UTF-8; bytes that are none are U+FFFD
  std::vector<int32_t> tokens;  // what was made; the one that ended it is not among them
  bool ended = false;           // by such a token
};

struct Generation {
  std::vector<GeneratedSample> samples;
  int64_t prompt_tokens = 0;
  int64_t prefilled = 0;  // of them, those the model read: at most a context
  int64_t steps = 0;      // of decoding: the first token of each sample comes from reading the prompt
  int64_t slides = 0;     // how often the window was full
  int64_t decoded = 0;    // tokens of all samples, made in those steps
  double prefill_seconds = 0, decode_seconds = 0;  // sampling counts as decoding

  double prefill_tokens_per_second() const;  // of one prompt
  double decode_tokens_per_second() const;   // over all samples; 0 where there was no step
};

// Whole characters of a sample, as soon as they are known.
using TextSink = std::function<void(int64_t sample, std::string_view piece)>;

class TextGenerator {
 public:
  // All three must outlive this.
  TextGenerator(RankContext& ctx, const Model& model, const Tokenizer& tokenizer)
      : ctx_(ctx), model_(model), tokenizer_(tokenizer) {}

  // Special tokens in the prompt are recognised. An empty one begins a new text: it stands for the end of the
  // text before.
  Generation generate(std::string_view prompt, const GenerateOptions& options, const TextSink& sink = {});
  Generation generate(std::span<const int32_t> prompt, const GenerateOptions& options,
                      const TextSink& sink = {});

 private:
  RankContext& ctx_;
  const Model& model_;
  const Tokenizer& tokenizer_;
};

}  // namespace kiln
