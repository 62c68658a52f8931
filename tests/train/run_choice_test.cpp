// What --fit and a recompute budget come to: chosen once, kept in run.json, taken from there again.
#include "train/run/run_choice.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "support/temp_folder.h"
#include "support/train_record.h"
#include "train/run/run_record.h"

namespace kiln {
namespace {

TrainRequest asked(const TempFolder& folder) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += "the cat sat on the mat and the dog sat on the log\n";
  folder.write("rhyme.txt", text);
  TrainRequest r;
  r.run = folder / "run";
  r.text = folder / "rhyme.txt";
  r.sizes = {"nano"};
  r.steps = 6;
  r.batch = 4;
  r.context = 32;
  r.threads = 1;
  r.sample_tokens = 0;
  return r;
}

cli::TrainRecord run(const TrainRequest& r) {
  cli::TrainRecord record;
  const std::atomic<bool> stop{false};
  EXPECT_EQ(train(r, record, stop).steps, r.steps);
  return record;
}

std::vector<double> losses(const cli::TrainRecord& record) {
  std::vector<double> all;
  for (const StepReport& s : record.steps) all.push_back(s.loss);
  return all;
}

TEST(RunChoice, ABudgetIsKeptToTheByteAndChangesNoBit) {
  const TempFolder folder;
  TrainRequest r = asked(folder);
  for (const char* precision : {"fp32", "bf16"}) {
    r.precision = precision;
    r.recompute = "none";
    r.fresh = true;
    const cli::TrainRecord plain = run(r);
    EXPECT_FALSE(plain.setup.choice);
    const std::size_t budget = plain.setup.memory.peak_total - plain.setup.memory.peak_total / 40;
    r.recompute = cat("budget:", budget);
    const cli::TrainRecord within = run(r);
    ASSERT_TRUE(within.setup.choice);
    EXPECT_TRUE(within.setup.choice->recompute.starts_with("plan:")) << within.setup.choice->recompute;
    EXPECT_LE(within.setup.memory.peak_total, budget);
    EXPECT_EQ(within.setup.memory.peak_total, within.memory.peak_total);
    EXPECT_EQ(losses(within), losses(plain));

    // The same command resumes with what was stored, whatever would be chosen today.
    const std::optional<RunChoice> none = stored_choice(r);
    EXPECT_FALSE(none) << "a fresh run chooses anew";
    r.fresh = false;
    ASSERT_TRUE(stored_choice(r));
    EXPECT_EQ(stored_choice(r)->recompute, within.setup.choice->recompute);
    TrainRequest other = r;
    other.batch = 2;
    EXPECT_FALSE(stored_choice(other));
    r.steps = 8;
    EXPECT_EQ(run(r).setup.choice->recompute, within.setup.choice->recompute);
    r.steps = 6;
  }
}

TEST(RunChoice, ABudgetThatNothingReachesIsRefused) {
  const TempFolder folder;
  TrainRequest r = asked(folder);
  r.recompute = "budget:1KiB";
  cli::TrainRecord record;
  const std::atomic<bool> stop{false};
  try {
    train(r, record, stop);
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::usage);
    EXPECT_NE(std::string(e.what()).find("the least is"), std::string::npos) << e.what();
  }
}

TEST(RunChoice, FitKeepsTheSequencesOfAStep) {
  const TempFolder folder;
  TrainRequest r = asked(folder);
  r.batch = 2;
  r.micro_steps = 3;
  r.fit = true;
  const cli::TrainRecord record = run(r);
  ASSERT_TRUE(record.setup.choice);
  EXPECT_EQ(record.setup.choice->batch * record.setup.choice->micro_steps, 6);
  EXPECT_EQ(record.setup.tokens_per_step, 6 * 32);
  EXPECT_EQ(record.setup.memory.peak_total, record.memory.peak_total);
  const Json page = Json::parse(run_record(r, record.setup, 1));
  EXPECT_EQ(page.at("options").at("batch"), 2);
  EXPECT_EQ(page.at("choice").at("chosen").at("batch"), record.setup.choice->batch);
  r.recompute = "block";
  EXPECT_THROW(check_request(r), Error);
  r.recompute = "none";
  r.canonical = true;
  EXPECT_THROW(check_request(r), Error);
}

TEST(RunChoice, GoesToTheOtherRanksAsText) {
  const RunChoice c{8, 3, "plan:norms*2", "because"};
  const RunChoice again = parse_choice(choice_text(c));
  EXPECT_EQ(again.batch, 8);
  EXPECT_EQ(again.micro_steps, 3);
  EXPECT_EQ(again.recompute, "plan:norms*2");
  EXPECT_THROW(parse_choice(R"({"batch": 0})"), Error);
  TrainRequest r;
  r.batch = 4;
  r.eval_batches = 10;
  take_choice(c, r);
  EXPECT_EQ(r.eval_batches, 5) << "as many sequences as before";
}

}  // namespace
}  // namespace kiln
