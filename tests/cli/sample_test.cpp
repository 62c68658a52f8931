// kiln sample and kiln eval on a folder made for the test: a fresh byte-level model with its tokenizer.
#include "train/run/sample.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/json.h"
#include "data/byte_tokenizer.h"
#include "data/load_tokenizer.h"
#include "kiln/command_line.h"
#include "support/temp_folder.h"
#include "train/run/convert.h"
#include "train/run/model_folder.h"

namespace kiln::cli {
namespace {

class Sample : public testing::Test {
 protected:
  Sample() {
    HfConfig c;
    c.model.vocab = 257;
    c.model.d_model = 32;
    c.model.d_ff = 48;
    c.model.layers = 2;
    c.model.heads = 4;
    c.model.kv_heads = 2;
    c.max_positions = 40;
    ConvertRequest fresh;
    fresh.fresh.model = folder_.write("config.json", hf_config_json(c));
    fresh.to = model_;
    fresh.seed = 5;
    (void)convert(fresh, [](uint64_t, uint64_t) {});
    save_tokenizer(*make_byte_tokenizer(), model_);
  }

  SampleRequest request() const {
    SampleRequest r;
    r.model.checkpoint = model_;
    r.model.device = "cpu";
    r.prompt = "clay and ";
    r.generate.tokens = 60;
    r.generate.sampling.temperature = 0;
    return r;
  }

  static SampleReport run(const SampleRequest& r) { return sample(r, {}, {}); }

  // What a command prints, and its error where it fails.
  struct Printed {
    std::string out, error;
    ErrorKind kind = ErrorKind::failed;
  };
  static Printed command(const std::vector<std::string>& args) {
    Printed p;
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    try {
      parse_command_line(args).run();
    } catch (const Error& e) {
      p.error = cat(e.what(), e.hint().empty() ? "" : " | ", e.hint());
      p.kind = e.kind();
    }
    (void)testing::internal::GetCapturedStderr();
    p.out = testing::internal::GetCapturedStdout();
    return p;
  }
  std::vector<std::string> sample_args(std::vector<std::string> more) const {
    more.insert(more.begin(), {"sample", "--checkpoint", model_});
    return more;
  }

  TempFolder folder_;
  std::string model_ = folder_ / "model";
};

TEST_F(Sample, WithAndWithoutCacheItIsTheSameTextAlsoBeyondTheContext) {
  SampleRequest r = request();
  const SampleReport with = run(r);
  r.generate.cache = false;
  const SampleReport without = run(r);
  EXPECT_EQ(with.context, 40);
  EXPECT_GT(with.generation.slides, 0);
  EXPECT_EQ(with.generation.samples[0].tokens, without.generation.samples[0].tokens);
  EXPECT_EQ(with.generation.samples[0].tokens.size(), 60U);
}

TEST_F(Sample, LoadsNoGradientsAndComputesInBf16) {
  SampleRequest r = request();
  r.model.precision = "bf16";
  const SampleReport narrow = run(r);
  EXPECT_EQ(narrow.generation.samples[0].tokens.size(), 60U);
  r.model.precision = "fp32";
  const SampleReport wide = run(r);
  EXPECT_EQ(narrow.weight_bytes * 2, wide.weight_bytes);
  EXPECT_EQ(wide.weight_bytes, static_cast<double>((wide.parameters - 257 * 32) * 4));
  RankContext ctx(rank_options(r.model, 0));
  const LoadedModel m = load_model(ctx, r.model);
  EXPECT_FALSE(m.model->params().grads().defined());
  EXPECT_EQ(ctx.allocator().stats().peak[Tag::grad], 0U);
}

TEST_F(Sample, PrintsOneJsonDocument) {
  const Printed p = command(sample_args({"--prompt", "ab", "--tokens", "5", "--samples", "2", "--top-k", "9",
                                         "--top-p", "0.9", "--temperature", "0.7", "--seed", "4", "--json"}));
  EXPECT_EQ(p.error, "");
  const auto page = Json::parse(p.out);
  EXPECT_EQ(page.at("prompt"), "ab");
  EXPECT_EQ(page.at("prompt_tokens"), 2);
  EXPECT_EQ(page.at("samples").size(), 2U);
  EXPECT_EQ(page.at("text"), page.at("samples").at(0).at("text"));
  EXPECT_EQ(page.at("tokens"), 5);
  EXPECT_EQ(page.at("seed"), 4);
  EXPECT_EQ(page.at("top_k"), 9);
  EXPECT_GT(page.at("prefill_tokens_per_s").get<double>(), 0);
  EXPECT_GT(page.at("decode_tokens_per_s").get<double>(), 0);
}

TEST_F(Sample, StreamsThePromptAndTheText) {
  SampleRequest r = request();
  r.generate.tokens = 7;
  const std::string text = run(r).generation.samples[0].text;
  const Printed p = command(sample_args({"--prompt", r.prompt, "--tokens", "7", "--temperature", "0"}));
  EXPECT_EQ(p.out, r.prompt + text + "\n");
}

TEST_F(Sample, SaysWhatIsWrongWithARequest) {
  const auto wrong = [&](std::vector<std::string> more) {
    const Printed p = command(sample_args(std::move(more)));
    EXPECT_EQ(p.out, "");
    EXPECT_EQ(p.kind, ErrorKind::usage) << p.error;
    return p.error;
  };
  EXPECT_EQ(wrong({"--temperature", "-1"}), "--temperature is '-1'; expected a number from 0 to 1000000");
  EXPECT_NE(wrong({"--temperature", "nan"}), "");
  EXPECT_NE(wrong({"--top-k", "0"}), "");
  EXPECT_NE(wrong({"--top-p", "0"}), "");
  EXPECT_NE(wrong({"--top-p", "1.5"}), "");
  EXPECT_NE(wrong({"--tokens", "0"}), "");
  EXPECT_NE(wrong({"--samples", "no"}), "");
  EXPECT_NE(wrong({"--context", "0"}), "");
  EXPECT_EQ(wrong({"--precision", "fp31"}),
            "--precision is 'fp31'; expected fp32 or bf16 | did you mean 'fp32'?");
  EXPECT_NE(wrong({"--variant", "linear=fast"}), "");
  EXPECT_NE(wrong({"--device", "meta"}).find("needs values"), std::string::npos);
  EXPECT_NE(wrong({"--bos"}).find("names no bos_token_id"), std::string::npos);
  EXPECT_EQ(command({"sample"}).error, "kiln sample needs --checkpoint | give the folder of a model");
  EXPECT_EQ(command({"eval", "--checkpoint", model_}).error.substr(0, 22), "kiln eval needs --text");
  EXPECT_EQ(command({"eval", "--checkpoint", model_, "--text", "x", "--batches", "some"}).error,
            "--batches is 'some'; expected a number from 1 on, or all");
}

TEST_F(Sample, AFolderThatIsNoModelIsNamed) {
  EXPECT_EQ(KILN_ERROR_OF(model_folder(folder_ / "nowhere")).substr(0, 19), "there is no folder ");
  EXPECT_NE(KILN_ERROR_OF(model_folder(folder_ / "config.json")).find("is a file"), std::string::npos);
  EXPECT_NE(
      KILN_ERROR_OF(model_folder(folder_.path() + "/..")).find("holds neither config.json nor checkpoints"),
      std::string::npos);
  EXPECT_EQ(model_folder(model_), model_);
}

TEST_F(Sample, TheTokenizerMustBeThereAndBeTheModels) {
  SampleRequest r = request();
  std::filesystem::remove(model_ + "/tokenizer.json");
  EXPECT_NE(KILN_ERROR_OF(run(r)).find("holds no tokenizer | name one: --tokenizer byte"), std::string::npos);
  r.model.tokenizer = "byte";
  EXPECT_EQ(run(r).generation.samples[0].tokens.size(), 60U);

  ConvertRequest other;
  other.fresh.sizes = {"nano"};
  other.to = folder_ / "nano";
  (void)convert(other, [](uint64_t, uint64_t) {});
  r.model.checkpoint = other.to;
  EXPECT_EQ(KILN_ERROR_OF(run(r)), "nothing") << "of 256 tokens: the bytes alone";
  other.fresh.vocab = 200;
  other.to = folder_ / "few";
  (void)convert(other, [](uint64_t, uint64_t) {});
  r.model.checkpoint = other.to;
  const std::string why = KILN_ERROR_OF(run(r));
  EXPECT_NE(why.find("the tokenizer has 257 tokens, the model in"), std::string::npos) << why;
  EXPECT_NE(why.find("has 200"), std::string::npos) << why;
}

TEST_F(Sample, EvalGivesLossPerplexityAndBitsPerByte) {
  std::string text;
  for (int i = 0; i < 30; ++i) text += "the potter turns the wheel\n";
  const std::string path = folder_.write("text.txt", text);
  const auto eval = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"eval", "--device", "cpu", "--checkpoint", model_, "--text", path, "--json"});
    const Printed p = command(more);
    EXPECT_EQ(p.error, "");
    return Json::parse(p.out);
  };
  const auto page = eval({});
  const double loss = page.at("loss").get<double>(), tokens = page.at("tokens").get<double>(),
               bytes = page.at("bytes").get<double>();
  EXPECT_EQ(page.at("context"), 40);
  EXPECT_EQ(tokens, 27 * 30 / 40 * 40);
  EXPECT_EQ(bytes, tokens);
  EXPECT_NEAR(loss, std::log(257.0), 2);
  EXPECT_NEAR(page.at("perplexity").get<double>(), std::exp(loss), 1e-6 * std::exp(loss));
  EXPECT_NEAR(page.at("bits_per_byte").get<double>(), loss / std::log(2.0), 1e-9);
  EXPECT_GT(page.at("tokens_per_s").get<double>(), 0);
  const auto few = eval({"--context", "13", "--batch", "3", "--batches", "2", "--precision", "bf16"});
  EXPECT_EQ(few.at("tokens"), 13 * 3 * 2);
  EXPECT_NEAR(few.at("loss").get<double>(), loss, 1);
}

}  // namespace
}  // namespace kiln::cli
