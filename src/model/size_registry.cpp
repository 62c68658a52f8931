#include "model/size_registry.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/nearest_name.h"

namespace kiln {
namespace {

constexpr auto kLlama = SizeKind::llama, kFfn = SizeKind::ffn_only;

// clang-format off
constexpr ModelSize kSizes[] = {
    // name            kind    d_model   d_ff layers heads  vocab
    {"nano",          kLlama,     64,    192,   2,   2,    256, "seconds on a laptop's CPU"},
    {"micro",         kLlama,    128,    384,   4,   4,    512, "a minute on a laptop's CPU"},
    {"tiny",          kLlama,    256,    768,   6,   4,   2048, "minutes on a laptop's CPU"},
    {"small",         kLlama,    768,   3072,  12,  12,  10000, "2025 and 2026 tables"},
    {"medium",        kLlama,   1024,   4096,  24,  16,  10000, "2025 and 2026 tables"},
    {"large",         kLlama,   1280,   5120,  36,  20,  10000, "2025 and 2026 tables"},
    {"xl25",          kLlama,   1600,   6400,  48,  25,  10000, "2025 table"},
    {"xl26",          kLlama,   2560,  10240,  32,  32,  10000, "2026 table; as 2.7b; 3.4 B, since the gated MLP has three matrices"},
    {"2.7b",          kLlama,   2560,  10240,  32,  32,  10000, "2025 table; as xl26; 3.4 B, since the gated MLP has three matrices"},
    {"10b",           kLlama,   4608,  12288,  50,  36,  10000, "2026 table; 12.8 B, since the gated MLP has three matrices"},
    {"leaderboard8b", kLlama,   4096,  11008,  34,  32, 151936, "the leaderboard's model, context 32,768"},
    {"xxl",           kFfn,    16384,  53248, 126,   0,      0, "two linears a block; for calculations only"},
};
// clang-format on

}  // namespace

std::string_view name_of(SizeKind kind) { return kind == SizeKind::llama ? "llama" : "ffn-only"; }

std::span<const ModelSize> model_sizes() { return kSizes; }

const ModelSize& find_model_size(std::string_view name) {
  const auto same = [&](std::string_view known) {  // NANO too
    return std::equal(known.begin(), known.end(), name.begin(), name.end(), [](char a, char b) {
      return a == (b >= 'A' && b <= 'Z' ? static_cast<char>(b - 'A' + 'a') : b);
    });
  };
  std::vector<std::string_view> names;
  for (const ModelSize& s : kSizes) {
    if (same(s.name)) return s;
    names.push_back(s.name);
  }
  const std::string near = nearest_name(name, names);
  throw Error(cat("there is no model size '", name, "'"),
              name == "xl"   ? "the tables of 2025 and 2026 differ: say xl25 or xl26"
              : near.empty() ? "kiln sizes lists them"
                             : cat("did you mean '", near, "'?"),
              ErrorKind::usage);
}

ModelConfig config_of(const ModelSize& size) {
  if (size.kind != SizeKind::llama) {
    throw Error(cat("size ", size.name, " is ", name_of(size.kind), ", not a model that can be built"),
                "it is there for calculations", ErrorKind::usage);
  }
  ModelConfig c;
  c.vocab = size.vocab;
  c.d_model = size.d_model;
  c.d_ff = size.d_ff;
  c.layers = size.layers;
  c.heads = c.kv_heads = size.heads;
  return c;
}

int64_t param_count(const ModelSize& s) {
  if (s.kind == SizeKind::ffn_only) return s.layers * 2 * s.d_model * s.d_ff;
  const int64_t block =
      4 * s.d_model * s.d_model + 3 * s.d_model * s.d_ff + 2 * s.d_model;  // q k v o; gate up down; norms
  return 2 * s.vocab * s.d_model + s.layers * block + s.d_model;
}

double train_flops_per_token(const ModelSize& s, int64_t context) {
  const auto product = [](auto... n) { return (static_cast<double>(n) * ...); };
  const int64_t multiplied = param_count(s) - s.vocab * s.d_model;
  const double attention = s.heads == 0 ? 0 : product(6, s.layers, s.d_model, context);
  return product(6, multiplied) + attention;
}

}  // namespace kiln
