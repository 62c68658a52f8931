// kiln plan --check: which rows are run, and what is said of them. No time is asserted.
#include "studies/plan/check.h"

#include <gtest/gtest.h>

#include "support/temp_folder.h"

namespace kiln {
namespace {

PlanCheckRow measured(int devices, double seconds) {
  PlanCheckRow row;
  row.devices = devices;
  row.run.timing = summarize({seconds});
  return row;
}

TEST(PlanCheck, TheChoiceIsJudgedByTheQuickestMeasured) {
  const std::vector<PlanCheckRow> rows = {measured(2, 1.0), measured(2, 0.8), measured(4, 3.0),
                                          measured(4, 3.1)};
  const std::vector<PlanChoice> choices = choices_of(rows);
  ASSERT_EQ(choices.size(), 2u);
  EXPECT_EQ(choices[0].devices, 2);
  EXPECT_FALSE(choices[0].right());
  EXPECT_EQ(choices[0].best, 1u);
  EXPECT_NEAR(choices[0].over_best, 0.25, 1e-12);
  EXPECT_TRUE(choices[1].right());
  EXPECT_EQ(choices[1].over_best, 0);
}

PlanCheckRequest request(const TempFolder& folder) {
  PlanCheckRequest q;
  q.plan.model = NamedModel(find_model_size("nano"));
  q.plan.model.config.vocab = 67;
  q.plan.devices = {2};
  q.plan.precision = Precision::fp32;
  q.plan.context = 9;
  q.plan.link = LinkModel{10e-6, 1e9};
  q.device = Device::cpu();
  q.threads = 1;
  q.candidates = 8;
  q.rounds = 1;
  q.steps = 1;
  q.folder = folder / "runs";
  machine_here(q);
  return q;
}

// Ranks that split the batch alike have the same losses, tensor-parallel or not.
TEST(PlanCheck, RunsTheFirstRowsOfThePlan) {
  const TempFolder folder;
  const PlanCheckRequest q = request(folder);
  const PlanCheckReport report = plan_check(q, [](const std::string&) {});
  int tensor = 0;
  for (const PlanCheckRow& r : report.rows) {
    EXPECT_FALSE(r.gate_failed()) << r.predicted.layout.name() << ": " << r.reason;
    EXPECT_TRUE(r.predicted.layout.runs());
    EXPECT_EQ(r.predicted.layout.devices(), r.devices);
    EXPECT_GT(r.run.timing.p50, 0);
    tensor += r.predicted.layout.tensor > 1;
    for (const PlanCheckRow& other : report.rows)
      if (other.devices == r.devices && other.predicted.layout.data == r.predicted.layout.data) {
        EXPECT_NEAR(other.run.loss, r.run.loss, 1e-4 * r.run.loss) << r.predicted.layout.name();
      }
  }
  EXPECT_GT(tensor, 0);
  ASSERT_EQ(report.choices.size(), 1u);
  EXPECT_EQ(report.rows[report.choices[0].first].rank, 1);
  const Json page = Json::parse(written(plan_check_page(report, false), PageFormat::json));
  EXPECT_EQ(page.at("command").text(), "plan");
  EXPECT_EQ(page.at("choices").size(), 1u);
  for (const char* key :
       {"layout", "predicted_ms", "p50_ms", "measured_over_predicted", "best", "link", "times"})
    EXPECT_TRUE(page.at("rows").at(0).contains(key)) << key;
  EXPECT_EQ(page.at("rows").at(0).at("link").text(), "modelled");
  EXPECT_EQ(plan_check_lines(report).size(), report.rows.size());
}

// What is measured is what was predicted to run: its memory is that of the prediction, to the byte.
TEST(PlanCheck, TensorParallelRanksTakeThePredictedMemory) {
  const TempFolder folder;
  PlanCheckRequest q = request(folder);
  q.plan.devices = {4};
  q.plan.tensor = {2};
  q.plan.strategies = {"ddp", "fsdp"};
  const PlanCheckReport report = plan_check(q, [](const std::string&) {});
  ASSERT_EQ(report.rows.size(), 2u);
  for (const PlanCheckRow& r : report.rows)
    EXPECT_EQ(r.run.memory.after_step.peak_total, r.predicted.memory.peak_total) << r.predicted.layout.name();
}

TEST(PlanCheck, RefusesWhatCannotBeRun) {
  const TempFolder folder;
  PlanCheckRequest q = request(folder);
  q.plan.link.reset();
  EXPECT_NE(KILN_ERROR_OF((check_plan_check(q), 0)).find("add --link"), std::string::npos);
  q = request(folder);
  q.device = Device::meta();
  EXPECT_NE(KILN_ERROR_OF((check_plan_check(q), 0)).find("nothing to compare a plan with"),
            std::string::npos);
  q = request(folder);
  q.plan.ffn_only = find_model_size("xxl");
  EXPECT_NE(KILN_ERROR_OF((check_plan_check(q), 0)).find("cannot be run"), std::string::npos);
}

}  // namespace
}  // namespace kiln
