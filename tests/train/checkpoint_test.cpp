#include "train/checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <random>
#include <set>

#include "data/load_tokenizer.h"
#include "support/temp_folder.h"
#include "train/checkpoint/checkpoint_names.h"
#include "train/checkpoint/manifest.h"
#include "train/trainer.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;

TinyRun tiny(Precision precision) {
  TinyRun run;
  run.precision = precision;
  run.step.micro_steps = 2;
  return run;
}

// A trainer whose state is kept by checkpoints.
struct Saved : Trainer {
  explicit Saved(const TinyRun& r) : Trainer(r) {}
  CheckpointParts parts() { return {ctx, model, step->optimizer(), tokenizer.get(), {}}; }
  TrainState state() {
    TrainState s;
    s.scalars = step->finish();
    s.loader.context = run.step.context;
    s.loader.tokens = 1000;
    s.loader.next = 7;
    s.identity = {"some", tokenizer->fingerprint()};
    return s;
  }
  std::string save(const RunFolder& folder, int keep = 3) {
    return save_checkpoint(folder, parts(), state(), keep,
                           [](const std::string& line) { ADD_FAILURE() << line; });
  }
  std::vector<std::byte> low() {
    const Tensor& t = model.params().low();
    return t.defined() ? fetch_bytes(ctx, t) : std::vector<std::byte>();
  }
  std::vector<std::byte> m() { return fetch_bytes(ctx, step->optimizer().state("m")); }
  std::vector<std::byte> v() { return fetch_bytes(ctx, step->optimizer().state("v")); }

  std::shared_ptr<const Tokenizer> tokenizer = load_tokenizer("byte");
};

class CheckpointOf : public testing::TestWithParam<Precision> {};
INSTANTIATE_TEST_SUITE_P(Precisions, CheckpointOf, testing::Values(Precision::fp32, Precision::bf16));

TEST_P(CheckpointOf, ResumesBitForBitInAnotherProcess) {
  const TempFolder temp;
  const RunFolder folder(temp / "run");
  Saved straight(tiny(GetParam())), first(tiny(GetParam()));
  for (int i = 0; i < 6; ++i) straight.train(i);
  for (int i = 0; i < 3; ++i) first.train(i);
  const std::string at = first.save(folder);
  EXPECT_EQ(at, temp / "run/checkpoints/step-00000003");

  Saved second(tiny(GetParam()));
  load_checkpoint(at, second.parts());
  second.step->restore(read_train_state(at).scalars);
  EXPECT_EQ(second.weights(), first.weights());
  EXPECT_EQ(second.low(), first.low());
  EXPECT_EQ(second.m(), first.m());
  EXPECT_EQ(second.step->finish().loss, first.step->finish().loss);
  for (int i = 3; i < 6; ++i) second.train(i);
  EXPECT_EQ(second.weights(), straight.weights());
  EXPECT_EQ(second.low(), straight.low());
  EXPECT_EQ(second.m(), straight.m());
  EXPECT_EQ(second.v(), straight.v());
  EXPECT_EQ(train_state_json(second.state()),
            train_state_json(straight.state()));  // all digits of every number
}

TEST_P(CheckpointOf, ResumesBitForBitWithEveryOptimizer) {
  for (const std::string_view name : optimizer_names()) {
    for (const double momentum : {0.0, 0.9}) {
      TinyRun run = tiny(GetParam());
      run.step.optimizer.name = name;
      run.step.optimizer.sgd.momentum = momentum;
      const TempFolder temp;
      const RunFolder folder(temp / "run");
      Saved straight(run), first(run), second(run);
      for (int i = 0; i < 4; ++i) straight.train(i);
      for (int i = 0; i < 2; ++i) first.train(i);
      const std::string at = first.save(folder);
      load_checkpoint(at, second.parts());
      second.step->restore(read_train_state(at).scalars);
      for (int i = 2; i < 4; ++i) second.train(i);
      EXPECT_EQ(second.weights(), straight.weights()) << name << " " << momentum;
      EXPECT_EQ(second.low(), straight.low()) << name << " " << momentum;
      for (const OptimizerState& s : straight.step->optimizer().state())
        EXPECT_EQ(fetch_bytes(second.ctx, second.step->optimizer().state(s.name)),
                  fetch_bytes(straight.ctx, s.values))
            << name << " " << s.name;
    }
  }
}

TEST(Checkpoint, OfAnOptimizerWhoseParametersJoinedAtDifferentStepsIsRefused) {
  const TempFolder temp;
  const RunFolder folder(temp / "run");
  TinyRun run = tiny(Precision::fp32);
  Saved s(run);
  s.model.params().params().front().trainable = false;
  s.step = std::make_unique<TrainStep>(s.ctx, s.model, s.plain, run.step);
  const auto frozen = [&] { return s.floats(s.model.params().params().front().value); };
  const std::vector<float> before = frozen();
  s.train(0);
  EXPECT_EQ(frozen(), before);
  s.model.params().params().front().trainable = true;
  s.step->refresh();
  s.train(1);
  s.step->finish();
  EXPECT_NE(frozen(), before);
  EXPECT_NE(KILN_ERROR_OF(s.save(folder)).find("added to the optimizer after its first step"),
            std::string::npos);
}

TEST(Checkpoint, TheStateReadsBackToTheBit) {
  Saved s(tiny(Precision::fp32));
  s.train(0);
  TrainState state = s.state();
  state.scalars.rate2_power = 1.0 / 3;
  state.totals = {0.1, 1e-300, 12345.678901234567, int64_t{1} << 60};
  const TrainState again = parse_train_state(train_state_json(state), "x");
  EXPECT_EQ(train_state_json(again), train_state_json(state));
  EXPECT_EQ(again.scalars.rate2_power, state.scalars.rate2_power);
  EXPECT_EQ(again.loader, state.loader);
  EXPECT_EQ(again.identity, state.identity);
  EXPECT_EQ(train_state_json(state).find("optimizer"), std::string::npos);  // as before there was a choice
  state.identity.optimizer = "sgd";
  EXPECT_EQ(parse_train_state(train_state_json(state), "x").identity, state.identity);
  EXPECT_EQ(again.totals.last_loss, state.totals.last_loss);
  EXPECT_EQ(again.totals.seconds, state.totals.seconds);
  EXPECT_EQ(again.totals.tokens, state.totals.tokens);
}

TEST(Checkpoint, OldOnesGoAndOtherFilesStay) {
  const TempFolder temp;
  const RunFolder folder(temp / "run");
  temp.write("run/checkpoints/mine.txt", "x");
  temp.write("run/checkpoints/step-1/x", "not our spelling");
  Saved s(tiny(Precision::fp32));
  for (int i = 0; i < 5; ++i) {
    s.train(i);
    s.save(folder, 2);
  }
  EXPECT_EQ(checkpoint_steps(folder.checkpoints()), (std::vector<int64_t>{5, 4}));
  EXPECT_EQ(temp.read("run/checkpoints/latest"), "step-00000005\n");
  EXPECT_EQ(temp.read("run/checkpoints/mine.txt"), "x");
  EXPECT_EQ(temp.read("run/checkpoints/step-1/x"), "not our spelling");
}

TEST(Checkpoint, FallsBackToTheLastGoodOneAndSaysSo) {
  const TempFolder temp;
  const RunFolder folder(temp / "run");
  Saved s(tiny(Precision::fp32));
  for (int i = 0; i < 3; ++i) {
    s.train(i);
    s.save(folder);
  }
  const auto none = [](const std::string& line) { ADD_FAILURE() << line; };
  EXPECT_EQ(newest_checkpoint(folder.checkpoints(), none), temp / "run/checkpoints/step-00000003");

  std::string bytes = temp.read("run/checkpoints/step-00000003/optimizer.safetensors");
  bytes[bytes.size() - 5] ^= 1;
  temp.write("run/checkpoints/step-00000003/optimizer.safetensors", bytes);
  fs::remove(temp / "run/checkpoints/step-00000002/manifest.json");
  std::vector<std::string> lines;
  const auto note = [&](const std::string& line) { lines.push_back(line); };
  EXPECT_EQ(newest_checkpoint(folder.checkpoints(), note), temp / "run/checkpoints/step-00000001");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_NE(lines[0].find("optimizer.safetensors: tensor v.lm_head.weight is damaged"), std::string::npos)
      << lines[0];
  EXPECT_NE(lines[1].find("step-00000002/manifest.json"), std::string::npos) << lines[1];

  temp.write("run/checkpoints/step-00000004.tmp.1/model.safetensors", "half");
  clear_leftovers(folder, 1);
  EXPECT_EQ(checkpoint_steps(folder.checkpoints()), (std::vector<int64_t>{1}));
  EXPECT_TRUE(fs::exists(temp / "run/checkpoints/step-00000003.bad/config.json"));
  EXPECT_FALSE(fs::exists(temp / "run/checkpoints/step-00000004.tmp.1"));

  fs::remove(temp / "run/checkpoints/step-00000001/state.json");
  EXPECT_NE(KILN_ERROR_OF(newest_checkpoint(folder.checkpoints(), {})).find("--fresh"), std::string::npos);
  EXPECT_FALSE(newest_checkpoint(temp / "nowhere", {}).has_value());
}

// Every file cut at every 97th byte and at every byte of its header, and ten thousand single bits flipped
// anywhere.
TEST(Checkpoint, NoCutAndNoFlippedBitGoesUnnoticed) {
  const TempFolder temp;
  const RunFolder folder(temp / "run");
  Saved s(tiny(Precision::fp32));
  s.train(0);
  const std::string at = s.save(folder);
  std::vector<std::string> names;
  for (const auto& e : fs::directory_iterator(at)) names.push_back(e.path().filename().string());
  std::sort(names.begin(), names.end());
  ASSERT_EQ(names, (std::vector<std::string>{"config.json", "manifest.json", "model.safetensors",
                                             "optimizer.safetensors", "state.json", "tokenizer.json"}));
  const std::string below = "run/checkpoints/step-00000001/";
  std::vector<std::string> good;
  std::size_t all = 0;
  for (const std::string& name : names) {
    good.push_back(temp.read(below + name));
    all += good.back().size();
  }
  const auto noticed = [&] { return KILN_ERROR_OF(verify_checkpoint(at)); };
  for (std::size_t f = 0; f < names.size(); ++f) {
    for (std::size_t n = good[f].size(); n-- > 0; n -= n < 256 ? 0 : std::min<std::size_t>(96, n)) {
      fs::resize_file(fs::path(at) / names[f], n);
      const std::string said = noticed();
      ASSERT_NE(said.find(names[f]), std::string::npos) << names[f] << " cut to " << n << ": " << said;
    }
    temp.write(below + names[f], good[f]);
  }
  ASSERT_EQ(noticed(), "nothing");
  std::mt19937_64 random(123);  // NOLINT(bugprone-random-generator-seed): the same each time
  for (int i = 0; i < 10'000; ++i) {
    std::size_t at_byte = random() % all, f = 0;
    while (at_byte >= good[f].size()) at_byte -= good[f++].size();
    std::fstream file(fs::path(at) / names[f], std::ios::in | std::ios::out | std::ios::binary);
    const auto put = [&](char c) { file.seekp(static_cast<std::streamoff>(at_byte)).put(c).flush(); };
    put(static_cast<char>(good[f][at_byte] ^ (1 << random() % 8)));
    const std::string said = noticed();
    ASSERT_NE(said.find(names[f]), std::string::npos) << names[f] << " byte " << at_byte << ": " << said;
    put(good[f][at_byte]);
  }
}

TEST(Checkpoint, AnotherModelOrTokenizerIsRefusedWithBothValues) {
  const TempFolder temp;
  const RunFolder folder(temp / "run");
  Saved s(tiny(Precision::fp32));
  s.train(0);
  const std::string at = s.save(folder);
  const RunIdentity mine{"some", s.tokenizer->fingerprint()};
  EXPECT_EQ(KILN_ERROR_OF((check_same_run(at, s.run.model, mine), 0)), "nothing");
  ModelConfig wider = s.run.model;
  wider.d_ff *= 2;
  EXPECT_NE(KILN_ERROR_OF((check_same_run(at, wider, mine), 0))
                .find(cat("has d_ff ", s.run.model.d_ff, "; this run has ", wider.d_ff)),
            std::string::npos);
  EXPECT_NE(KILN_ERROR_OF((check_same_run(at, s.run.model, {"bf16", mine.tokenizer}), 0))
                .find("has the precision some; this run has bf16"),
            std::string::npos);
  EXPECT_NE(KILN_ERROR_OF((check_same_run(at, s.run.model, {"some", "0123456789abcdef"}), 0))
                .find("has the tokenizer " + mine.tokenizer),
            std::string::npos);
}

TEST(Checkpoint, ASaveThatCannotBeLeavesTheOldOneAndNothingElse) {
  const TempFolder temp;
  const RunFolder folder(temp / "run");
  Saved s(tiny(Precision::fp32));
  s.train(0);
  s.save(folder);
  s.train(1);
  temp.write("run/checkpoints/step-00000002/in the way", "x");  // a folder that is not empty: rename refuses
  EXPECT_NE(KILN_ERROR_OF(s.save(folder)).find("cannot rename"), std::string::npos);
  std::set<std::string> left;
  for (const auto& e : fs::directory_iterator(folder.checkpoints()))
    left.insert(e.path().filename().string());
  EXPECT_EQ(left, (std::set<std::string>{"latest", "step-00000001", "step-00000002"}));
  EXPECT_EQ(newest_checkpoint(folder.checkpoints(), {}), temp / "run/checkpoints/step-00000001");
}

TEST(Checkpoint, AGhostPublishesNothing) {
  const TempFolder temp;
  const RunFolder ghost(temp / "run");
  Saved s(tiny(Precision::fp32));
  s.train(0);
  fs::remove(temp / "run/lock");
  const RunFolder next(temp / "run");
  EXPECT_NE(KILN_ERROR_OF(s.save(ghost)).find("was taken over"), std::string::npos);
  EXPECT_TRUE(checkpoint_steps(next.checkpoints()).empty());
}

TEST(Checkpoint, NamesAreSpeltOneWay) {
  EXPECT_EQ(checkpoint_name(40), "step-00000040");
  EXPECT_EQ(step_of_checkpoint("step-00000040"), 40);
  EXPECT_EQ(step_of_checkpoint(checkpoint_name(123456789012)), 123456789012);
  for (const char* other : {"step-40", "step-", "step-0000004x", "step-00000040.bad", "step-00000040.tmp.1",
                            "step-99999999999999999999", "latest", ""})
    EXPECT_FALSE(step_of_checkpoint(other)) << other;
  EXPECT_TRUE(is_unfinished_checkpoint("step-00000040.tmp.12"));
  EXPECT_FALSE(is_unfinished_checkpoint("step-00000040.tmp."));
  EXPECT_FALSE(is_unfinished_checkpoint("step-00000040.tmp.x"));
}

}  // namespace
}  // namespace kiln
