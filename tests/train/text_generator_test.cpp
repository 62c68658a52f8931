// Texts generated with the cache against a slow loop that recomputes everything for every token.
#include "train/run/text_generator.h"

#include <gtest/gtest.h>

#include "autograd/tape.h"
#include "data/byte_tokenizer.h"
#include "data/utf8.h"
#include "model/hf_folder.h"
#include "model/llama.h"
#include "support/temp_folder.h"

namespace kiln {
namespace {

ModelConfig config() {
  ModelConfig c;
  c.vocab = 257;
  c.d_model = 32;
  c.d_ff = 48;
  c.layers = 2;
  c.heads = 4;
  c.kv_heads = 2;
  return c;
}

class TextGeneration : public testing::Test {
 protected:
  explicit TextGeneration(Precision precision = Precision::fp32) : model_(config()) {
    model_.params().materialize(ctx_, {precision, false});
  }

  // Greedy, as one would write it down: all logits of the window, the highest of the last row.
  std::vector<int32_t> slow_loop(std::vector<int32_t> window, int64_t tokens, int64_t context) {
    const GradModeGuard off(ctx_, GradMode::off);
    std::vector<int32_t> made;
    while (static_cast<int64_t>(made.size()) < tokens) {
      const auto T = static_cast<int64_t>(window.size());
      const Tensor t = ctx_.empty({1, T}, DType::i32);
      ctx_.upload(t, window.data());
      const Tensor logits = model_.logits(ctx_, t);
      const float* last = logits.data<float>() + (T - 1) * config().vocab;
      const auto next = static_cast<int32_t>(std::max_element(last, last + config().vocab) - last);
      made.push_back(next);
      window.push_back(next);
      if (static_cast<int64_t>(window.size()) > context)
        window.erase(window.begin(), window.end() - context / 2);
    }
    return made;
  }

  std::vector<int32_t> tokens_of(const GenerateOptions& o, std::string_view prompt = "The kiln is ") {
    return generator_.generate(prompt, o).samples[0].tokens;
  }

  RankContext ctx_;
  Llama model_;
  std::shared_ptr<const Tokenizer> tokenizer_ = make_byte_tokenizer();
  TextGenerator generator_{ctx_, model_, *tokenizer_};
};

TEST_F(TextGeneration, GreedyIsTheSlowLoop) {
  const std::vector<int32_t> prompt = tokenizer_->encode("The kiln is ");
  for (const int64_t context : {100, 16, 13}) {  // never full; full after a few; full after one
    GenerateOptions o{.tokens = 45, .context = context, .sampling = {.temperature = 0}};
    const auto wanted = slow_loop(prompt, o.tokens, context);
    const Generation with = generator_.generate(prompt, o);
    o.cache = false;
    const Generation without = generator_.generate(prompt, o);
    EXPECT_EQ(with.samples[0].tokens, wanted) << "context " << context;
    EXPECT_EQ(without.samples[0].tokens, wanted) << "context " << context;
    EXPECT_EQ(with.samples[0].text, without.samples[0].text);
    EXPECT_EQ(with.slides > 0, context < 100);
    EXPECT_EQ(with.slides, without.slides);
    EXPECT_EQ(with.steps, 44);
  }
}

TEST_F(TextGeneration, APromptLongerThanTheContextIsSeenFromItsEnd) {
  const std::string prompt = "Once upon a time there was a kiln";
  const GenerateOptions o{.tokens = 8, .context = 10, .sampling = {.temperature = 0}};
  EXPECT_EQ(tokens_of(o, prompt)[0], tokens_of(o, prompt.substr(prompt.size() - 10))[0]);
  EXPECT_EQ(tokens_of({.tokens = 5, .context = 1, .sampling = {.temperature = 0}}, prompt).size(), 5u);
}

TEST_F(TextGeneration, TheSameSeedGivesTheSameTextWithAndWithoutTheCache) {
  GenerateOptions o{
      .tokens = 30, .context = 24, .sampling = {.temperature = 0.9, .top_k = 40, .top_p = 0.9}, .seed = 5};
  const auto first = tokens_of(o);
  EXPECT_EQ(tokens_of(o), first);
  o.cache = false;
  EXPECT_EQ(tokens_of(o), first);
  o.cache = true;
  o.seed = 6;
  EXPECT_NE(tokens_of(o), first);
}

TEST_F(TextGeneration, SamplesInABatchAreThoseOfSmallerBatches) {
  const GenerateOptions one{.tokens = 20, .samples = 1, .context = 16, .seed = 3};
  GenerateOptions three = one;
  three.samples = 3;
  std::vector<std::string> streamed(3);
  const Generation g = generator_.generate("ab", three, [&](int64_t i, std::string_view piece) {
    streamed[static_cast<std::size_t>(i)] += piece;
  });
  ASSERT_EQ(g.samples.size(), 3u);
  EXPECT_EQ(g.samples[0].tokens, tokens_of(one, "ab"));
  EXPECT_NE(g.samples[0].tokens, g.samples[1].tokens);
  EXPECT_NE(g.samples[1].tokens, g.samples[2].tokens);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(g.samples[i].text, streamed[i]);
    EXPECT_EQ(utf8_valid_prefix(streamed[i]), streamed[i].size());
  }
}

TEST_F(TextGeneration, StopsAtTheTokensThatEndAText) {
  const GenerateOptions o{.tokens = 20, .sampling = {.temperature = 0}};
  const auto all = tokens_of(o);
  GenerateOptions stopping = o;
  stopping.stop = {all[6]};
  const auto first = std::find(all.begin(), all.end(), all[6]);
  const Generation g = generator_.generate("The kiln is ", stopping);
  EXPECT_EQ(g.samples[0].tokens, std::vector<int32_t>(all.begin(), first));
  EXPECT_TRUE(g.samples[0].ended);
  EXPECT_FALSE(generator_.generate("The kiln is ", o).samples[0].ended);
}

TEST_F(TextGeneration, AnEmptyPromptBeginsBehindTheEndOfAText) {
  const GenerateOptions o{.tokens = 6, .sampling = {.temperature = 0}};
  EXPECT_EQ(tokens_of(o, ""), tokens_of(o, "<|endoftext|>"));
  EXPECT_EQ(generator_.generate("", o).prompt_tokens, 1);
}

TEST_F(TextGeneration, LeavesTheModelAsItWas) {
  ctx_.tape().reset();
  (void)tokens_of({.tokens = 4});
  EXPECT_EQ(ctx_.tape().size(), 0);
  EXPECT_EQ(ctx_.tape().mode(), GradMode::record);
  for (const Param& p : model_.params().params()) EXPECT_EQ(p.expected, 0) << p.name;
}

TEST_F(TextGeneration, RefusesWhatCannotBeMade) {
  const auto refused = [&](const GenerateOptions& o) { return KILN_ERROR_OF(generator_.generate("a", o)); };
  EXPECT_EQ(refused({.tokens = 0}), "the number of tokens to make is 0; expected 1 or more");
  EXPECT_EQ(refused({.samples = 0}), "the number of samples is 0; expected 1 or more");
  EXPECT_EQ(refused({.context = 0}), "the context is 0; expected 1 or more");
  EXPECT_NE(refused({.sampling = {.top_p = 2}}), "nothing");
  EXPECT_NE(KILN_ERROR_OF(generator_.generate(std::vector<int32_t>{}, GenerateOptions{})), "nothing");
  EXPECT_EQ(KILN_ERROR_OF(generator_.generate(std::vector<int32_t>{400}, GenerateOptions{})),
            "token 400 of the prompt is not in the model's vocabulary of 257");
}

class NarrowTextGeneration : public TextGeneration {
 protected:
  NarrowTextGeneration() : TextGeneration(Precision::bf16) {}
};

TEST_F(NarrowTextGeneration, RunsInBf16) {
  const GenerateOptions o{.tokens = 25, .samples = 2, .context = 20, .sampling = {.temperature = 0.8}};
  const Generation g = generator_.generate("clay", o);
  EXPECT_EQ(g.samples[0].tokens.size(), 25u);
  EXPECT_GT(g.slides, 0);
}

}  // namespace
}  // namespace kiln
