#include "model/hf_folder.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <filesystem>
#include <random>

#include "autograd/tape.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "base/safetensors_writer.h"
#include "model/hf_index.h"
#include "model/hf_save.h"
#include "model/llama.h"
#include "support/temp_folder.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;

HfConfig tiny_config(bool tied = false) {
  HfConfig c;
  c.model.vocab = 61;
  c.model.d_model = 24;
  c.model.d_ff = 40;
  c.model.layers = 2;
  c.model.heads = 6;
  c.model.kv_heads = 2;
  c.model.tied = tied;
  return c;
}

std::vector<float> logits_of(RankContext& ctx, const Llama& model) {
  GradModeGuard off(ctx, GradMode::off);
  const std::vector<int32_t> tokens = {4, 8, 15, 16, 23, 42};
  const Tensor ids = ctx.empty({1, static_cast<int64_t>(tokens.size())}, DType::i32);
  ctx.upload(ids, tokens.data());
  const Tensor out = model.logits(ctx, ids);
  std::vector<float> values(static_cast<std::size_t>(out.numel()));
  ctx.download(values.data(), out);
  return values;
}

std::vector<float> all_of(WeightSource& source, const ModelConfig& config) {
  std::vector<float> all, one;
  for (const WeightSpec& w : weight_specs(config)) {
    one.resize(static_cast<std::size_t>(w.shape.numel()));
    source.read(w, 0, one);
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

// A fresh model in memory, whose seed makes it differ from others.
struct Fresh {
  explicit Fresh(const HfConfig& config, uint64_t seed = 7, Precision precision = Precision::fp32)
      : ctx(options(seed)), model(config.model) {
    model.params().materialize(ctx, {precision, false});
  }
  static RankOptions options(uint64_t seed) {
    RankOptions o;
    o.seed = seed;
    o.threads = 1;
    return o;
  }
  ParamValues values() { return {ctx, model.params()}; }
  RankContext ctx;
  Llama model;
};

TEST(HfFolder, ALoadedModelGivesTheSameLogits) {
  for (const bool tied : {false, true}) {
    for (const uint64_t shard : {uint64_t{5'000'000'000}, uint64_t{3000}}) {
      const TempFolder folder;
      const HfConfig config = tiny_config(tied);
      Fresh saved(config, 7);
      ParamValues values = saved.values();
      HfSaveOptions options;
      options.max_shard_bytes = shard;
      const auto tensors = save_hf_folder(folder.path(), config, values, options);

      HfFolder read(folder.path());
      EXPECT_EQ(read.files() > 1, shard == 3000);
      EXPECT_EQ(fs::exists(folder / "model.safetensors"), shard != 3000);
      EXPECT_EQ(tensors.size(), read.weights().size());
      Fresh loaded(read.config(), 8);
      EXPECT_NE(logits_of(loaded.ctx, loaded.model), logits_of(saved.ctx, saved.model));
      load_weights(read, config.model, RopeLayout::halves, loaded.ctx, loaded.model.params());
      EXPECT_EQ(logits_of(loaded.ctx, loaded.model), logits_of(saved.ctx, saved.model));
      for (const SavedTensor& t : tensors) {
        const SafetensorsFile file(folder / t.file);
        EXPECT_EQ(crc32c(file.bytes(file.header().find(t.name).value())), t.crc32c) << t.name;
        EXPECT_EQ(file.header().metadata("format"), "pt");
      }
    }
  }
}

TEST(HfFolder, EveryDtypeRoundsOnceAndThenStays) {
  const HfConfig config = tiny_config();
  Fresh fresh(config);
  ParamValues values = fresh.values();
  const std::vector<float> exact = all_of(values, config.model);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    HfConfig as = config;
    as.dtype = dtype;
    const TempFolder first, second;
    (void)save_hf_folder(first.path(), as, values);
    HfFolder read(first.path());
    EXPECT_EQ(read.config().dtype, dtype);
    const std::vector<float> got = all_of(read, config.model);
    for (std::size_t i = 0; i < got.size(); ++i) {
      const float wanted = dtype == DType::f32    ? exact[i]
                           : dtype == DType::bf16 ? static_cast<float>(bf16(exact[i]))
                                                  : static_cast<float>(fp16(exact[i]));
      ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(wanted));
    }
    (void)save_hf_folder(second.path(), as, read);
    EXPECT_EQ(first.read("model.safetensors"), second.read("model.safetensors"));
    EXPECT_EQ(first.read("config.json"), second.read("config.json"));
  }
}

// All parameters of a store, written from random fp32 bits and read back.
TEST(ParamValues, EveryPrecisionKeepsFp32) {
  const HfConfig config = tiny_config();
  for (const Precision precision : {Precision::fp32, Precision::fp64, Precision::bf16, Precision::autocast,
                                    Precision::fp16, Precision::pure_bf16}) {
    Fresh fresh(config, 7, precision);
    ParamValues values = fresh.values();
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    std::vector<float> wanted;
    for (const WeightSpec& w : weight_specs(config.model)) {
      std::vector<float> all(static_cast<std::size_t>(w.shape.numel()));
      for (float& f : all) f = normal(random);
      wanted.insert(wanted.end(), all.begin(), all.end());
      for (int64_t row = 0; row < w.rows(); row += 3) {  // in pieces
        const int64_t rows = std::min<int64_t>(3, w.rows() - row);
        values.write(w, row,
                     std::span(all).subspan(static_cast<std::size_t>(row * w.columns()),
                                            static_cast<std::size_t>(rows * w.columns())));
      }
    }
    if (precision == Precision::pure_bf16) {  // the one that has no fp32 to keep
      for (float& f : wanted) f = static_cast<float>(bf16(f));
    }
    EXPECT_EQ(all_of(values, config.model), wanted) << name_of(precision);
  }
}

TEST(ParamValues, MistakesAreNamed) {
  const HfConfig config = tiny_config();
  RankContext ctx{RankOptions{}};
  Llama empty(config.model);
  EXPECT_NE(KILN_ERROR_OF(ParamValues(ctx, empty.params())).find("no weights yet"), std::string::npos);
  RankOptions second;
  second.rank = 1;
  second.world = 3;
  RankContext one_of_three{second};
  Llama sharded(config.model);
  sharded.params().materialize(one_of_three, {Precision::fp32, true});
  const WeightSpec embedding = weight_specs(config.model)[0];
  std::vector<float> row(static_cast<std::size_t>(embedding.columns()));
  EXPECT_NE(KILN_ERROR_OF(ParamValues(one_of_three, sharded.params()).read(embedding, 0, row))
                .find("is sharded over ranks: 0 of 24 values are on this one"),
            std::string::npos);
  Fresh fresh(config);
  ParamValues values = fresh.values();
  std::vector<float> two(48);
  const WeightSpec q = weight_specs(config.model)[2];
  EXPECT_NE(KILN_ERROR_OF(values.read({"lm_head", {4}, {}}, 0, two)).find("has no weight lm_head"),
            std::string::npos);
  EXPECT_NE(KILN_ERROR_OF(values.read({q.name, {4, 4}, {}}, 0, two)).find("is [24, 24] in the model"),
            std::string::npos);
  EXPECT_NE(KILN_ERROR_OF(values.read(q, 23, two)).find("beyond its end"), std::string::npos);
}

TEST(RandomWeights, AreThoseOfAFreshStore) {
  for (const bool tied : {false, true}) {
    const HfConfig config = tiny_config(tied);
    Fresh fresh(config, 11);
    ParamValues values = fresh.values();
    RandomWeights random(fresh.ctx);
    EXPECT_EQ(all_of(random, config.model), all_of(values, config.model));
  }
}

TEST(RopeLayout, ThereAndBackIsTheIdentity) {
  const HfConfig config = tiny_config();
  Fresh fresh(config);
  ParamValues values = fresh.values();
  const TempFolder plain, turned, back;
  (void)save_hf_folder(plain.path(), config, values);
  HfSaveOptions options;
  options.to = RopeLayout::interleaved;
  (void)save_hf_folder(turned.path(), config, values, options);
  HfFolder between(turned.path());
  options = {};
  options.from = RopeLayout::interleaved;
  (void)save_hf_folder(back.path(), config, between, options);
  EXPECT_NE(plain.read("model.safetensors"), turned.read("model.safetensors"));
  EXPECT_EQ(plain.read("model.safetensors"), back.read("model.safetensors"));

  Fresh loaded(config, 99);
  load_weights(between, config.model, RopeLayout::interleaved, loaded.ctx, loaded.model.params());
  EXPECT_EQ(logits_of(loaded.ctx, loaded.model), logits_of(fresh.ctx, fresh.model));
}

// Row 2 i + j of a head, interleaved, is row j D/2 + i in halves; only q and k move.
TEST(RopeLayout, MovesTheRowsItSays) {
  const HfConfig config = tiny_config();
  Fresh fresh(config);
  ParamValues values = fresh.values();
  const int64_t D = config.model.head_dim();
  RelaidWeights relaid(values, D, RopeLayout::halves, RopeLayout::interleaved);
  int moved = 0;
  for (const WeightSpec& w : weight_specs(config.model)) {
    const auto columns = static_cast<std::size_t>(w.columns());
    std::vector<float> a(static_cast<std::size_t>(w.shape.numel())), b(a.size());
    values.read(w, 0, a);
    relaid.read(w, 0, b);
    const bool turned =
        w.name.find("q_proj") != std::string::npos || w.name.find("k_proj") != std::string::npos;
    if (!turned) {
      EXPECT_EQ(a, b) << w.name;
      continue;
    }
    ++moved;
    for (int64_t row = 0; row < w.rows(); ++row) {
      const int64_t head = row / D, i = row % D / 2, j = row % 2;
      const int64_t source = head * D + j * (D / 2) + i;
      EXPECT_TRUE(std::equal(b.begin() + row * w.columns(), b.begin() + (row + 1) * w.columns(),
                             a.begin() + source * w.columns()))
          << w.name << " " << row;
    }
    std::vector<float> part(columns);
    EXPECT_NE(KILN_ERROR_OF(relaid.read(w, 1, part)).find("by whole heads"), std::string::npos);
  }
  EXPECT_EQ(moved, 4);
}

// A folder with one model.safetensors made of the tiny model's tensors, after `change` had its way.
using Tensors = std::vector<SafetensorsDeclaration>;
std::string folder_complaint(const HfConfig& config, const std::function<void(Tensors&)>& change) {
  const TempFolder folder;
  Tensors tensors;
  for (const WeightSpec& w : weight_specs(config.model)) {
    tensors.push_back({w.name, SafetensorsType::f32, {}});
    for (int i = 0; i < w.shape.rank(); ++i)
      tensors.back().shape.push_back(static_cast<uint64_t>(w.shape[i]));
  }
  change(tensors);
  SafetensorsWriter writer(folder / "model.safetensors", tensors);
  for (const auto& t : tensors) {
    // The head of a tied model would be zeros, as the embedding is; "differs" asks for another one.
    const std::vector<std::byte> bytes(t.bytes(),
                                       std::byte(t.name == "lm_head.weight" && config.pad ? 1 : 0));
    writer.append(bytes);
  }
  (void)writer.commit();
  folder.write("config.json", hf_config_json(config));
  return KILN_ERROR_OF(HfFolder(folder.path()));
}

TEST(HfFolder, EveryTensorOnceInItsShapeAndNothingElse) {
  const HfConfig config = tiny_config();
  const auto has = [](const std::string& text, const std::string& words) {
    EXPECT_NE(text.find(words), std::string::npos) << text;
  };
  EXPECT_EQ(folder_complaint(config, [](Tensors&) {}), "nothing");
  has(folder_complaint(config, [](Tensors& t) { t.erase(t.begin() + 3); }),
      "lacks the tensor model.layers.0.self_attn.k_proj.weight [8, 24]");
  has(folder_complaint(config, [](Tensors& t) { t.pop_back(); }), "the head must be there");
  has(folder_complaint(config, [](Tensors& t) { t[2].shape = {24, 23}; }),
      "q_proj.weight is [24, 23]; config.json makes it [24, 24]");
  has(folder_complaint(config, [](Tensors& t) { t[2].shape = {24, 24, 1}; }), "is [24, 24, 1]");
  has(folder_complaint(config, [](Tensors& t) { t[0].type = SafetensorsType::i32; }),
      "is I32; kiln reads F32, BF16, F16 and F64");
  has(folder_complaint(config,
                       [](Tensors& t) {
                         t.push_back({"model.layers.0.self_attn.q_proj.bias", SafetensorsType::f32, {24}});
                       }),
      "tensor 'model.layers.0.self_attn.q_proj.bias' [24] is not part of a LLaMA");
  EXPECT_EQ(folder_complaint(
                config,
                [](Tensors& t) {
                  t.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", SafetensorsType::f32, {2}});
                }),
            "nothing");

  HfConfig tied = tiny_config(true);
  const auto add_head = [](Tensors& t) { t.push_back({"lm_head.weight", SafetensorsType::f32, {61, 24}}); };
  EXPECT_EQ(folder_complaint(tied, [](Tensors&) {}), "nothing");
  EXPECT_EQ(folder_complaint(tied, add_head), "nothing");
  has(folder_complaint(tied, [](Tensors& t) { t.push_back({"lm_head.weight", SafetensorsType::f32, {61}}); }),
      "lm_head.weight is [61]");
  tied.pad = 0;
  has(folder_complaint(tied, add_head), "lm_head.weight differs from model.embed_tokens.weight");
}

TEST(HfFolder, FilesMustAgreeWithTheIndex) {
  const TempFolder folder;
  const HfConfig config = tiny_config();
  Fresh fresh(config);
  ParamValues values = fresh.values();
  HfSaveOptions options;
  options.max_shard_bytes = 8000;
  (void)save_hf_folder(folder.path(), config, values, options);
  const HfIndex good = read_hf_index(folder / kHfIndexName);
  const auto complaint = [&](const std::function<void(HfIndex&)>& change) {
    HfIndex index = good;
    change(index);
    folder.write(kHfIndexName, hf_index_json(index));
    return KILN_ERROR_OF(HfFolder(folder.path()));
  };
  const auto has = [](const std::string& text, const std::string& words) {
    EXPECT_NE(text.find(words), std::string::npos) << text;
  };
  const std::string last = good.weight_map.at("lm_head.weight");
  EXPECT_EQ(complaint([](HfIndex&) {}), "nothing");
  EXPECT_EQ(complaint([](HfIndex& i) { i.total_size.reset(); }), "nothing");
  has(complaint([](HfIndex& i) { ++*i.total_size; }), "metadata.total_size is ");
  has(complaint([&](HfIndex& i) { i.weight_map["model.embed_tokens.weight"] = last; }), "which lacks it");
  has(complaint([](HfIndex& i) { i.weight_map.erase("model.norm.weight"); }),
      "tensor 'model.norm.weight' is not in the index");
  has(complaint([](HfIndex& i) { i.weight_map["more"] = "none.safetensors"; }),
      "none.safetensors: No such file or directory");
  has(complaint([](HfIndex& i) { i.weight_map["more"] = "../x"; }), "expected the plain name of a file");
  has(complaint([](HfIndex& i) { i.weight_map["more"] = ".."; }), "expected the plain name of a file");
  has(complaint([](HfIndex& i) { i.weight_map["more"] = ""; }), "expected the plain name of a file");
  has(complaint([](HfIndex& i) { i.weight_map.clear(); }), "weight_map is empty");
  EXPECT_EQ(complaint([](HfIndex&) {}), "nothing");
  folder.write("model.safetensors", "");
  has(complaint([](HfIndex&) {}), "has both model.safetensors and model.safetensors.index.json");
}

TEST(HfFolder, NoWeightsNoFolder) {
  const TempFolder folder;
  EXPECT_NE(KILN_ERROR_OF(HfFolder(folder / "none")).find("there is no folder"), std::string::npos);
  EXPECT_NE(KILN_ERROR_OF(HfFolder(folder.path())).find("config.json: No such file"), std::string::npos);
  folder.write("config.json", hf_config_json(tiny_config()));
  EXPECT_NE(KILN_ERROR_OF(HfFolder(folder.path())).find("has neither model.safetensors"), std::string::npos);
  folder.write("pytorch_model.bin", "");
  EXPECT_NE(KILN_ERROR_OF(HfFolder(folder.path())).find("pickle files can run code"), std::string::npos);
}

TEST(HfFolder, AValueBeyondFp16IsRefusedByName) {
  const TempFolder folder;
  HfConfig config = tiny_config();
  Fresh fresh(config);
  ParamValues values = fresh.values();
  const std::vector<float> big(24, 1e6f);
  values.write(weight_specs(config.model)[2], 4, big);
  config.dtype = DType::f16;
  EXPECT_NE(KILN_ERROR_OF(save_hf_folder(folder.path(), config, values))
                .find("q_proj.weight holds 1e+06, which fp16 cannot hold"),
            std::string::npos);
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(HfFolder, Fp64FilesAreRounded) {
  const TempFolder folder;
  const HfConfig config = tiny_config();
  Tensors tensors;
  for (const WeightSpec& w : weight_specs(config.model)) {
    tensors.push_back({w.name, SafetensorsType::f64, {}});
    for (int i = 0; i < w.shape.rank(); ++i)
      tensors.back().shape.push_back(static_cast<uint64_t>(w.shape[i]));
  }
  SafetensorsWriter writer(folder / "model.safetensors", tensors);
  for (const auto& t : tensors) {
    const std::vector<double> values(t.bytes() / 8, 0.1);
    writer.append(std::as_bytes(std::span(values)));
  }
  (void)writer.commit();
  folder.write("config.json", hf_config_json(config));
  HfFolder read(folder.path());
  for (const float f : all_of(read, config.model)) ASSERT_EQ(f, 0.1f);
}

}  // namespace
}  // namespace kiln
