#include "model/hf_config.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/json_reader.h"
#include "base/mapped_file.h"

namespace kiln {
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 20;
constexpr int64_t kMostIds = int64_t{1} << 31;

constexpr std::pair<DType, std::string_view> kTorchNames[] = {
    {DType::f32, "float32"}, {DType::bf16, "bfloat16"}, {DType::f16, "float16"}, {DType::f64, "float64"}};

[[noreturn]] void refuse(const JsonValue& value, std::string_view expected) {
  const std::string text = value.raw().dump();
  value.fail(cat("is ", text.size() <= 80 ? text : text.substr(0, 77) + "...", "; kiln has only ", expected));
}

void want_false(const JsonValue& root, std::string_view key) {
  if (root.has(key) && root.at(key).boolean()) refuse(root.at(key), "false");
}

double positive(const JsonValue& value) {
  const double number = value.number();
  if (!(number > 0) || !std::isfinite(number)) value.fail(cat("is ", number, "; expected a positive number"));
  return number;
}

using Scaling = RopeScaling::Kind;
constexpr std::pair<Scaling, std::string_view> kScalings[] = {{Scaling::none, "default"},
                                                              {Scaling::linear, "linear"},
                                                              {Scaling::dynamic, "dynamic"},
                                                              {Scaling::llama3, "llama3"}};

Scaling read_scaling_kind(const JsonValue& rope) {
  for (const char* key : {"rope_type", "type"}) {
    if (!rope.has(key)) continue;
    const std::string name = rope.at(key).string();
    for (const auto& [kind, known] : kScalings) {
      if (known == name) return kind;
    }
    refuse(rope.at(key), "\"default\", \"linear\", \"dynamic\" and \"llama3\"");
  }
  return Scaling::none;
}

// A description of how positions are turned, old (rope_scaling) or new (rope_parameters). `positions`:
// max_position_embeddings.
RopeScaling read_scaling(const JsonValue& rope, int64_t positions) {
  RopeScaling s{.kind = read_scaling_kind(rope)};
  if (rope.has("partial_rotary_factor") && rope.at("partial_rotary_factor").number() != 1)
    refuse(rope.at("partial_rotary_factor"), "1");
  for (const char* key : {"short_factor", "long_factor"}) {
    if (rope.has(key)) refuse(rope.at(key), "one factor for all pairs");
  }
  for (const auto& [key, value] : rope.object()) {  // one description per kind of layer
    if (value.is_object()) refuse(rope.at(key), "one rotary embedding for all layers");
  }
  if (s.kind == Scaling::none) {
    if (rope.has("factor") && rope.at("factor").number() != 1)
      refuse(rope.at("factor"), "unscaled positions where no rope_type is named");
    return s;
  }
  s.factor = positive(rope.at("factor"));
  s.trained = positions;
  if (s.kind != Scaling::llama3) return s;
  s.trained = rope.at("original_max_position_embeddings").integer(1, int64_t{1} << 40);
  s.slow_turns = positive(rope.at("low_freq_factor"));
  s.quick_turns = positive(rope.at("high_freq_factor"));
  if (s.quick_turns <= s.slow_turns)
    rope.at("high_freq_factor")
        .fail(cat("is ", s.quick_turns, "; expected more than low_freq_factor ", s.slow_turns));
  return s;
}

void read_rope(const JsonValue& root, int64_t positions, ModelConfig& m) {
  std::optional<double> theta;
  if (root.has("rope_theta")) theta = positive(root.at("rope_theta"));
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!root.has(key)) continue;
    const JsonValue rope = root.at(key);
    const RopeScaling scaling = read_scaling(rope, positions);
    if (m.rope_scaling.kind != Scaling::none && !(m.rope_scaling == scaling))
      rope.fail("says something else than rope_scaling");
    m.rope_scaling = scaling;
    if (!rope.has("rope_theta")) continue;
    const double inner = positive(rope.at("rope_theta"));
    if (theta && *theta != inner)
      rope.at("rope_theta").fail(cat("is ", inner, ", and rope_theta elsewhere is ", *theta));
    theta = inner;
  }
  m.rope_theta = theta.value_or(10000);
}

Json scaling_json(const RopeScaling& s) {
  for (const auto& [kind, name] : kScalings) {
    if (kind != s.kind) continue;
    Json json = {{"rope_type", name}};
    if (kind != Scaling::none) json["factor"] = s.factor;
    if (kind == Scaling::llama3) {
      json["low_freq_factor"] = s.slow_turns;
      json["high_freq_factor"] = s.quick_turns;
      json["original_max_position_embeddings"] = s.trained;
    }
    return json;
  }
  return {};
}

DType read_dtype(const JsonValue& root) {
  for (const char* key : {"dtype", "torch_dtype"}) {
    if (!root.has(key)) continue;
    const auto dtype = parse_torch_dtype(root.at(key).string());
    if (!dtype) refuse(root.at(key), "float32, bfloat16, float16 and float64");
    return *dtype;
  }
  return DType::f32;
}

std::optional<int64_t> read_id(const JsonValue& root, std::string_view key) {
  if (!root.has(key)) return std::nullopt;
  return root.at(key).integer(-1, kMostIds);
}

std::vector<int64_t> read_ids(const JsonValue& root, std::string_view key) {
  if (!root.has(key)) return {};
  const JsonValue value = root.at(key);
  if (!value.raw().is_array()) return {value.integer(-1, kMostIds)};
  std::vector<int64_t> ids;
  ids.reserve(value.array().size());
  for (std::size_t i = 0; i < value.array().size(); ++i) ids.push_back(value.at(i).integer(-1, kMostIds));
  return ids;
}

// What transformers takes where a config.json leaves something out.
struct Family {
  std::string_view type, architecture;
  int64_t kv_heads, positions, window;  // 0: as many as heads; all keys
};
constexpr Family kFamilies[] = {{"llama", "LlamaForCausalLM", 0, 2048, 0},
                                {"mistral", "MistralForCausalLM", 8, 131072, 4096}};

const Family& read_family(const JsonValue& root) {
  const JsonValue type = root.at("model_type");
  const auto family = std::find_if(std::begin(kFamilies), std::end(kFamilies),
                                   [&](const Family& f) { return f.type == type.string(); });
  if (family == std::end(kFamilies)) refuse(type, "\"llama\" and \"mistral\"");
  if (root.has("architectures")) {
    const JsonValue architectures = root.at("architectures");
    const Json::Array& list = architectures.array();
    bool known = list.empty();
    for (const Json& a : list) known = known || (a.is_string() && a.text() == family->architecture);
    if (!known) refuse(root.at("architectures"), family->architecture);
  }
  return *family;
}

void check_architecture(const JsonValue& root) {
  if (root.has("hidden_act") && root.at("hidden_act").string() != "silu")
    refuse(root.at("hidden_act"), "\"silu\"");
  want_false(root, "attention_bias");
  want_false(root, "mlp_bias");
  if (root.has("quantization_config"))
    root.at("quantization_config").fail("is there: kiln does not read quantised weights");
  if (root.has("partial_rotary_factor") && root.at("partial_rotary_factor").number() != 1)
    refuse(root.at("partial_rotary_factor"), "1");
}

// Of a key that is there without a value: every query sees all keys before it.
int64_t read_window(const JsonValue& root, int64_t usual) {
  if (root.has("sliding_window")) return root.at("sliding_window").integer(1, int64_t{1} << 40);
  return root.raw().contains("sliding_window") ? 0 : usual;
}

void check_heads(const JsonValue& root, const ModelConfig& m) {
  if (m.head_width == 0 && m.d_model % m.heads != 0)
    root.at("hidden_size").fail(cat("is ", m.d_model, ", not divisible by num_attention_heads ", m.heads));
  if (m.heads % m.kv_heads != 0)
    root.at("num_key_value_heads")
        .fail(cat("is ", m.kv_heads, ", of which num_attention_heads ", m.heads, " is not a multiple"));
  if (m.head_width % 2 != 0)
    root.at("head_dim").fail(cat("is ", m.head_width, "; rotary embedding wants an even width"));
  if (m.head_dim() % 2 != 0)
    root.at("hidden_size")
        .fail(cat("is ", m.d_model, ": a head is ", m.head_dim(),
                  " wide; rotary embedding wants an even width"));
}

// 1e-05f as the double 1e-05, so that the file shows what a person wrote.
double shortest(float value) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  double result = 0;
  std::from_chars(text.data(), end, result);
  return result;
}

}  // namespace

std::string_view torch_name_of(DType dtype) {
  for (const auto& [type, name] : kTorchNames) {
    if (type == dtype) return name;
  }
  throw Error(cat("weights of ", name_of(dtype), " have no name in a config.json"));
}

std::optional<DType> parse_torch_dtype(std::string_view name) {
  if (name.starts_with("torch.")) name.remove_prefix(6);
  for (const auto& [type, known] : kTorchNames) {
    if (known == name) return type;
  }
  return std::nullopt;
}

HfConfig parse_hf_config(std::string_view text, std::string_view source) {
  const Json document = parse_json(text, {.max_bytes = kMostBytes, .max_values = 100'000}, source);
  const JsonValue root(document, source);
  (void)root.object();
  const Family& family = read_family(root);
  check_architecture(root);
  HfConfig c;
  c.max_positions = family.positions;
  ModelConfig& m = c.model;
  // Bounds far above any model, so that no product of them leaves 64 bits.
  m.vocab = root.at("vocab_size").integer(1, int64_t{1} << 27);
  m.d_model = root.at("hidden_size").integer(1, int64_t{1} << 20);
  m.d_ff = root.at("intermediate_size").integer(1, int64_t{1} << 24);
  m.layers = root.at("num_hidden_layers").integer(1, 10'000);
  m.heads = root.at("num_attention_heads").integer(1, int64_t{1} << 16);
  m.kv_heads = root.has("num_key_value_heads") ? root.at("num_key_value_heads").integer(1, int64_t{1} << 16)
               : family.kv_heads > 0           ? family.kv_heads
                                               : m.heads;
  if (root.has("head_dim")) m.head_width = root.at("head_dim").integer(1, int64_t{1} << 16);
  if (m.d_model % m.heads == 0 && m.head_width == m.d_model / m.heads) m.head_width = 0;  // as without it
  check_heads(root, m);
  const double eps = root.has("rms_norm_eps") ? positive(root.at("rms_norm_eps")) : 1e-6;
  m.norm_eps = static_cast<float>(eps);
  if (!(m.norm_eps > 0) || !std::isfinite(m.norm_eps))
    root.at("rms_norm_eps").fail(cat("is ", eps, ", which fp32 cannot hold"));
  if (root.has("max_position_embeddings"))
    c.max_positions = root.at("max_position_embeddings").integer(1, int64_t{1} << 40);
  read_rope(root, c.max_positions, m);
  if (family.window > 0) m.window = read_window(root, family.window);
  m.tied = root.has("tie_word_embeddings") && root.at("tie_word_embeddings").boolean();
  if (root.has("initializer_range")) c.initializer_range = root.at("initializer_range").number();
  c.dtype = read_dtype(root);
  c.bos = read_id(root, "bos_token_id");
  c.pad = read_id(root, "pad_token_id");
  c.eos = read_ids(root, "eos_token_id");
  return c;
}

HfConfig read_hf_config(const std::string& path) {
  const bool folder = std::filesystem::is_directory(path);
  const std::string file = folder ? (std::filesystem::path(path) / "config.json").string() : path;
  return parse_hf_config(read_small_file(file, kMostBytes, "a config.json"), file);
}

std::string hf_config_json(const HfConfig& c) {
  const ModelConfig& m = c.model;
  const auto id = [](const std::optional<int64_t>& i) { return i ? Json(*i) : Json(nullptr); };
  const Json eos = c.eos.empty() ? Json(nullptr) : c.eos.size() == 1 ? Json(c.eos[0]) : Json(c.eos);
  const Family& family = kFamilies[m.window > 0 ? 1 : 0];
  const Json rope = scaling_json(m.rope_scaling);
  const bool scaled = m.rope_scaling.kind != Scaling::none;
  Json rope_and_theta = rope;
  rope_and_theta["rope_theta"] = m.rope_theta;
  // What dynamic scaling is reckoned from.
  const int64_t positions =
      m.rope_scaling.kind == Scaling::dynamic ? m.rope_scaling.trained : c.max_positions;
  Json page = {
      {"architectures", {family.architecture}},
      {"model_type", family.type},
      {"vocab_size", m.vocab},
      {"hidden_size", m.d_model},
      {"intermediate_size", m.d_ff},
      {"num_hidden_layers", m.layers},
      {"num_attention_heads", m.heads},
      {"num_key_value_heads", m.kv_heads},
      {"head_dim", m.head_dim()},
      {"max_position_embeddings", positions},
      {"rms_norm_eps", shortest(m.norm_eps)},
      {"rope_theta", m.rope_theta},
      {"rope_scaling", scaled ? rope : Json()},
      {"rope_parameters", rope_and_theta},
      {"hidden_act", "silu"},
      {"tie_word_embeddings", m.tied},
      {"attention_bias", false},
      {"attention_dropout", 0.0},
      {"mlp_bias", false},
      {"initializer_range", c.initializer_range},
      {"bos_token_id", id(c.bos)},
      {"eos_token_id", eos},
      {"pad_token_id", id(c.pad)},
      {"use_cache", true},
      {"torch_dtype", torch_name_of(c.dtype)},
      {"dtype", torch_name_of(c.dtype)},
  };
  if (m.window > 0) page["sliding_window"] = m.window;
  return page.dump(2) + "\n";
}

}  // namespace kiln
