// A run's options as its folder records them: run.json keeps its keys whatever options are called now,
// and the config takes its run up again.
#include "train/run/run_record.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json_reader.h"
#include "support/temp_folder.h"
#include "train/run/train_options.h"

namespace kiln {
namespace {

TrainRequest request() {
  TrainRequest r;
  r.run = "run";
  r.text = "some/text";
  r.sizes = {"nano"};
  r.kv_heads = 2;
  r.micro_steps = 3;
  r.bucket_auto = true;
  r.optimizer.adamw.beta2 = 0.98;
  r.stop_on_save_error = true;
  r.seed = 7;
  return r;
}

TrainRequest read_back(const std::string& config) {
  Json page = Json::parse(config);
  for (const char* common : {"seed", "device"}) page.erase(common);
  TrainRequest r;
  Options options;
  add_train_options(options, r);
  options.read(JsonValue(page, "run_config.json"));
  r.run = "run";
  r.seed = 7;
  return r;
}

TEST(RunRecord, AConfigIsTakenAgain) {
  const std::string config = run_config(request());
  EXPECT_EQ(Json::parse(config).at("grad_accum"), 3);
  EXPECT_EQ(Json::parse(config).at("seed"), 7);
  const TrainRequest again = read_back(config);
  EXPECT_EQ(run_config(again), config);
  EXPECT_EQ(options_text(again), options_text(request()));
  EXPECT_EQ(again.kv_heads, 2);
  EXPECT_TRUE(again.bucket_auto);
  EXPECT_TRUE(again.stop_on_save_error);
  EXPECT_FALSE(again.warmup.has_value()) << "what follows from other options still does";
}

// As kiln wrote it before options had their present names.
constexpr const char* kEarlier = R"({"options": {
  "text": "some/text", "tokenizer": "byte", "vocab": 0, "model": "micro", "precision": "fp32",
  "recompute": "none", "preset": "optimized", "variants": "", "graph": "auto", "prefetch": "auto",
  "steps": 500, "batch": 8, "context": 128, "accumulate": 1, "lr": 0.001, "min_lr": 0.0001, "warmup": 50,
  "decay": 0.1, "beta1": 0.9, "beta2": 0.95, "eps": 1e-08, "clip": 1.0, "loss_scale": 65536.0,
  "scale_interval": 2000, "eval_every": 0, "eval_batches": 10, "save_every": 50, "keep": 3,
  "on_save_error": "go-on", "sample_every": 0, "sample_tokens": 80, "prompt": "", "held_out": 0.1,
  "overfit": false, "seed": 0, "strategy": "none", "ranks": 1, "tp": 1, "transport": "auto",
  "bucket_mb": 25.0, "link": "", "fsdp_prefetch": 1, "wire": "fp32", "canonical": 0}})";

TEST(RunRecord, AnEarlierKilnsOptionsAreTheSameOptions) {
  TrainRequest r;
  r.text = "some/text";
  const std::string now = run_record(r, {}, 1);
  const Json before = Json::parse(kEarlier), page = Json::parse(now);
  for (const auto& [key, value] : before.at("options").items()) {
    ASSERT_TRUE(page.at("options").contains(key)) << key;
    EXPECT_EQ(page.at("options").at(key), value) << key;
  }
  EXPECT_EQ(changed_options(kEarlier, now), std::vector<std::string>{});
  r.micro_steps = 4;
  r.tied = true;  // its own section says so
  r.optimizer.adamw.decay = 0.2;
  const std::vector<std::string> changes = changed_options(kEarlier, run_record(r, {}, 1));
  EXPECT_EQ(changes, (std::vector<std::string>{"accumulate was 1, is 4", "decay was 0.1, is 0.2"}));
}

TEST(RunRecord, WhatADeclarationDoesNotAllowIsRefusedWithoutACommandLine) {
  const auto said = [](auto change) {
    TrainRequest r;
    r.run = "run";
    change(r);
    return KILN_ERROR_OF(check_request(r));
  };
  EXPECT_EQ(said([](TrainRequest&) {}), "nothing");
  EXPECT_EQ(said([](TrainRequest& r) { r.steps = 0; }).find("--steps is '0'; expected"), 0U);
  EXPECT_EQ(said([](TrainRequest& r) { r.optimizer.adamw.beta1 = 1; }).find("--adam-beta1 is '1'; expected"),
            0U);
  EXPECT_EQ(said([](TrainRequest& r) { r.layers = 0; }).find("--layers is '0'; expected"), 0U);
  EXPECT_EQ(said([](TrainRequest& r) { r.held_out = 2; }).find("--val-fraction is '2'; expected"), 0U);
}

}  // namespace
}  // namespace kiln
