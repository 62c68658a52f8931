#include "model/hf_config.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"
#include "support/temp_folder.h"

namespace kiln {
namespace {

const Json& plain() {
  static const Json kPage = {
      {"model_type", "llama"},    {"vocab_size", 61},       {"hidden_size", 24},
      {"intermediate_size", 40},  {"num_hidden_layers", 2}, {"num_attention_heads", 6},
      {"num_key_value_heads", 2}, {"rms_norm_eps", 1e-5},   {"transformers_version", "5"}};
  return kPage;
}

// As RFC 7396 has it: null takes a key away, an object changes what is inside of another.
void merge(Json& page, const Json& change) {
  for (const auto& [key, value] : change.items()) {
    if (value.is_null()) {
      page.erase(key);
    } else if (value.is_object() && page.contains(key) && page[key].is_object()) {
      merge(page[key], value);
    } else {
      page[key] = value;
    }
  }
}

HfConfig parsed(const Json& change) {
  Json page = plain();
  merge(page, change);
  return parse_hf_config(page.dump(), "config.json");
}

std::string complaint(const Json& change) { return KILN_ERROR_OF(parsed(change)); }

TEST(HfConfig, OldAndNewKeys) {
  const HfConfig old = parsed({{"torch_dtype", "bfloat16"},
                               {"rope_theta", 500000},
                               {"rope_scaling", nullptr},
                               {"architectures", {"LlamaForCausalLM"}}});
  const HfConfig now = parsed({{"dtype", "bfloat16"},
                               {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 500000.0}}},
                               {"head_dim", 4}});
  for (const HfConfig& c : {old, now}) {
    EXPECT_EQ(c.dtype, DType::bf16);
    EXPECT_EQ(c.model.rope_theta, 500000);
    EXPECT_EQ(c.model.vocab, 61);
    EXPECT_EQ(c.model.kv_heads, 2);
    EXPECT_EQ(c.model.norm_eps, 1e-5f);
    EXPECT_FALSE(c.model.tied);
  }
}

TEST(HfConfig, WhatIsLeftOutHasTheValueTransformersGivesIt) {
  Json page = plain();
  page.erase("rms_norm_eps");
  page.erase("num_key_value_heads");
  const HfConfig c = parse_hf_config(page.dump(), "f");
  EXPECT_EQ(c.model.norm_eps, 1e-6f);
  EXPECT_EQ(c.model.kv_heads, 6);
  EXPECT_EQ(c.model.rope_theta, 10000);
  EXPECT_EQ(c.max_positions, 2048);
  EXPECT_EQ(c.dtype, DType::f32);
  EXPECT_FALSE(c.bos);
  EXPECT_TRUE(c.eos.empty());
}

TEST(HfConfig, RoundTrip) {
  HfConfig c = parsed({{"max_position_embeddings", 8192},
                       {"bos_token_id", 128000},
                       {"eos_token_id", {128001, 128009}},
                       {"pad_token_id", 3},
                       {"initializer_range", 0.013},
                       {"tie_word_embeddings", true},
                       {"rope_theta", 123456.5},
                       {"torch_dtype", "float16"}});
  const std::string text = hf_config_json(c);
  const HfConfig again = parse_hf_config(text, "again");
  EXPECT_EQ(hf_config_json(again), text);
  EXPECT_EQ(again.max_positions, 8192);
  EXPECT_EQ(again.bos, 128000);
  EXPECT_EQ(again.pad, 3);
  EXPECT_EQ(again.eos, (std::vector<int64_t>{128001, 128009}));
  EXPECT_EQ(again.initializer_range, 0.013);
  EXPECT_TRUE(again.model.tied);
  EXPECT_EQ(again.model.rope_theta, 123456.5);
  EXPECT_EQ(again.dtype, DType::f16);
  const Json page = Json::parse(text);
  EXPECT_EQ(page["torch_dtype"], page["dtype"]);
  EXPECT_EQ(page["rope_theta"], page["rope_parameters"]["rope_theta"]);
  EXPECT_EQ(page["rms_norm_eps"], 1e-5);
  c.eos = {2};
  EXPECT_EQ(Json::parse(hf_config_json(c))["eos_token_id"], 2);
}

TEST(HfConfig, WhatKilnCannotDoIsRefusedByKeyAndValue) {
  const auto expect = [](const Json& change, const std::string& words) {
    const std::string got = complaint(change);
    EXPECT_TRUE(got.starts_with("config.json: ") && got.find(words) != std::string::npos) << change << got;
  };
  expect({{"model_type", "gpt2"}}, "model_type is \"gpt2\"; kiln has only \"llama\" and \"mistral\"");
  expect({{"model_type", "mistral"}, {"architectures", {"LlamaForCausalLM"}}},
         "kiln has only MistralForCausalLM");
  expect({{"model_type", "mistral"}, {"sliding_window", 0}},
         "sliding_window is 0; expected a whole number from 1");
  expect({{"model_type", nullptr}}, "lacks 'model_type'");
  expect({{"architectures", {"LlamaForTokenClassification"}}}, "architectures is [\"LlamaForToken");
  expect({{"hidden_act", "gelu"}}, "hidden_act is \"gelu\"");
  expect({{"attention_bias", true}}, "attention_bias is true; kiln has only false");
  expect({{"mlp_bias", true}}, "mlp_bias is true");
  expect({{"hidden_size", 25}}, "hidden_size is 25, not divisible by num_attention_heads 6");
  expect({{"hidden_size", 18}}, "a head is 3 wide");
  expect({{"num_key_value_heads", 4}}, "num_key_value_heads is 4, of which num_attention_heads 6");
  expect({{"rope_scaling", {{"type", "linear"}}}}, "rope_scaling lacks 'factor'");
  expect({{"rope_scaling", {{"type", "linear"}, {"factor", 0}}}}, "factor is 0; expected a positive number");
  expect({{"rope_scaling", {{"factor", 2}}}}, "unscaled positions where no rope_type is named");
  expect({{"rope_scaling", {{"rope_type", "llama3"}, {"factor", 8}}}},
         "lacks 'original_max_position_embeddings'");
  expect({{"rope_scaling",
           {{"rope_type", "llama3"},
            {"factor", 8},
            {"original_max_position_embeddings", 8192},
            {"low_freq_factor", 4},
            {"high_freq_factor", 4}}}},
         "high_freq_factor is 4; expected more than low_freq_factor 4");
  expect({{"rope_scaling", {{"rope_type", "linear"}, {"factor", 2}}},
          {"rope_parameters", {{"rope_type", "linear"}, {"factor", 4}}}},
         "rope_parameters says something else than rope_scaling");
  expect({{"rope_parameters", {{"rope_type", "yarn"}}}}, "rope_parameters.rope_type is \"yarn\"");
  expect({{"rope_parameters", {{"full_attention", {{"rope_theta", 1.0}}}}}}, "one rotary embedding for all");
  expect({{"rope_theta", 1e4}, {"rope_parameters", {{"rope_theta", 2e4}}}},
         "and rope_theta elsewhere is 10000");
  expect({{"rope_theta", -1}}, "rope_theta is -1; expected a positive number");
  expect({{"rms_norm_eps", 1e-60}}, "which fp32 cannot hold");
  expect({{"rms_norm_eps", "small"}}, "rms_norm_eps is \"small\"; expected a number");
  expect({{"torch_dtype", "int8"}}, "torch_dtype is \"int8\"");
  expect({{"quantization_config", {{"bits", 4}}}}, "quantization_config is there");
  expect({{"partial_rotary_factor", 0.5}}, "partial_rotary_factor is 0.5");
  expect({{"vocab_size", 1e9}}, "vocab_size is 1000000000.0; expected a whole number");
  expect({{"num_hidden_layers", -2}}, "num_hidden_layers is -2; expected a whole number from 1");
  expect({{"vocab_size", nullptr}}, "lacks 'vocab_size'");
  EXPECT_NE(KILN_ERROR_OF(parse_hf_config("[]", "f")).find("f: the document is an array"), std::string::npos);
}

TEST(HfConfig, ScaledPositionsAreReadAndWritten) {
  using Kind = RopeScaling::Kind;
  const Json llama3 = {{"rope_type", "llama3"},
                       {"factor", 8.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 8192}};
  const HfConfig c = parsed({{"rope_scaling", llama3}, {"max_position_embeddings", 131072}});
  EXPECT_EQ(
      c.model.rope_scaling,
      (RopeScaling{.kind = Kind::llama3, .factor = 8, .trained = 8192, .slow_turns = 1, .quick_turns = 4}));
  const Json page = Json::parse(hf_config_json(c));
  EXPECT_EQ(page["rope_scaling"], llama3);
  EXPECT_EQ(page["max_position_embeddings"], 131072);
  EXPECT_EQ(parse_hf_config(page.dump(), "again").model.rope_scaling, c.model.rope_scaling);

  HfConfig dynamic =
      parsed({{"rope_scaling", {{"type", "dynamic"}, {"factor", 2}}}, {"max_position_embeddings", 512}});
  EXPECT_EQ(dynamic.model.rope_scaling, (RopeScaling{.kind = Kind::dynamic, .factor = 2, .trained = 512}));
  dynamic.max_positions = 4096;  // trained further on longer texts
  EXPECT_EQ(Json::parse(hf_config_json(dynamic))["max_position_embeddings"], 512)
      << "what its scaling starts from";
  const HfConfig linear = parsed({{"rope_parameters", {{"rope_type", "linear"}, {"factor", 4}}}});
  EXPECT_EQ(linear.model.rope_scaling.kind, Kind::linear);
  EXPECT_EQ(linear.model.rope_scaling.factor, 4);
}

TEST(HfConfig, AMistralIsALlamaUpToItsWindow) {
  const HfConfig c = parsed({{"model_type", "mistral"},
                             {"num_key_value_heads", nullptr},
                             {"num_attention_heads", 8},
                             {"hidden_size", 32}});
  EXPECT_EQ(c.model.kv_heads, 8) << "what transformers takes";
  EXPECT_EQ(c.model.window, 4096);
  EXPECT_EQ(c.max_positions, 131072);
  Json wide = plain();
  wide["model_type"] = "mistral";
  wide["sliding_window"] = nullptr;
  EXPECT_EQ(parse_hf_config(wide.dump(), "f").model.window, 0);
  const HfConfig narrow = parsed({{"model_type", "mistral"}, {"sliding_window", 64}});
  EXPECT_NO_THROW(check_context(narrow.model, 64));
  EXPECT_NE(
      KILN_ERROR_OF(check_context(narrow.model, 65)).find("longer than the model's attention window of 64"),
      std::string::npos);
  const Json page = Json::parse(hf_config_json(narrow));
  EXPECT_EQ(page["model_type"], "mistral");
  EXPECT_EQ(page["architectures"], Json({"MistralForCausalLM"}));
  EXPECT_EQ(page["sliding_window"], 64);
  EXPECT_EQ(parse_hf_config(page.dump(), "again").model.window, 64);
}

TEST(HfConfig, AHeadMayBeWiderThanItsShareOfTheModel) {
  const HfConfig c = parsed({{"head_dim", 8}});
  EXPECT_EQ(c.model.head_dim(), 8);
  EXPECT_EQ(parsed({{"hidden_size", 25}, {"head_dim", 8}}).model.head_dim(), 8);  // 6 heads
  EXPECT_EQ(parsed({{"head_dim", 4}}).model.head_width, 0);  // that of hidden_size: nothing said
}

}  // namespace
}  // namespace kiln
