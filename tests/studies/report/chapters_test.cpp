// Every question's sentences come from the rows: other rows, other sentences; no rows, none.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <set>

#include "studies/report/chapters/answered.h"
#include "support/ablation_rows.h"
#include "support/has.h"

#include "studies/report/chapter_rows.h"

namespace kiln {
namespace {

using namespace chapter_rows;

struct Case {
  const char* heading;
  std::vector<Json> rows;
  const char* says;
  std::vector<Json> others;
  const char* says_then;
};

std::vector<Json> ablation(double bf16) {
  std::vector<Json> rows = ablation_rows::study();
  rows[5] = ablation_rows::added_row("bf16", {"fused_rope", "bf16"}, bf16, bf16 < 6 ? 3 : 4);
  return rows;
}

std::vector<Case> cases() {
  return {
      {"Speed-up of each optimization", ablation(10), "20 to 10 ms: 2.00x", ablation(5), "20 to 5 ms: 4.00x"},
      {"Memory of each optimization", ablation(10), "+bf16 at 4 MiB (0.50x)", ablation(5),
       "+bf16 at 3 MiB (0.38x)"},
      {"Roofline, prediction and measurement of a step",
       {compare(4)},
       "roofline 1 ms, measured 4 ms, predicted 3 ms (25 % off); the gap is dispatch 2 ms",
       {compare(6)},
       "measured 6 ms"},
      {"Where the difference comes from",
       {compare(4)},
       "linear forward, 2 ms above its roofline: dispatch: the host was between calls",
       {compare(6)},
       "3 ms above"},
      {"The benchmark",
       {step("fp32", 8)},
       "timed 1 step of nano",
       {step("fp32", 8), step("fp32", 16, 4e6)},
       "timed 2 steps of nano and small"},
      {"Forward and backward pass timings",
       {step("fp32", 8), step("fp32", 16, 2e6)},
       "to the power of 1.00",
       {step("fp32", 8), step("fp32", 32, 2e6)},
       "to the power of 2.00"},
      {"Impact of warm-up steps",
       {warmup(0, 20), warmup(5, 10)},
       "takes 2.00x as long",
       {warmup(0, 30), warmup(5, 10)},
       "takes 3.00x as long"},
      {"Total time of the forward pass",
       {profile(4)},
       "forward take 4 ms. Traced and timed agree.",
       {profile(5)},
       "forward take 5 ms"},
      {"The kernel with the most time",
       {profile(4)},
       "`linear packed` takes most of forward, 4 ms in 9 calls (70 %); with backward it is the same one",
       {profile(5)},
       "5 ms in 9 calls"},
      {"Softmax against matrix multiplications", {profile(4)}, "0.80x of the time", {}, ""},
      {"Launches and dispatch", {profile(4)}, "21 launches in forward and 46 in the step", {}, ""},
      {"Kernels besides matrix multiplies", {profile(4)}, "rope fused 5.0 % of forward", {}, ""},
      {"A complete step with AdamW",
       {profile(4)},
       "70 % of the kernels' time in inference and 60 % in a training step",
       {},
       ""},
      {"Mixed precision accumulation", {sums(9.95)}, "fp16 += fp16: 9.95", {sums(9.5)}, "by -0.5"},
      {"Data types of the toy model",
       {toy("bf16")},
       "logits bf16 and loss fp32",
       {toy("fp16")},
       "logits fp16"},
      {"Layer normalization and precision",
       {norm("is fp32 still needed under fp16? yes, for range")},
       "Is fp32 still needed under fp16? yes, for range.",
       {norm("is fp32 still needed under fp16? no")},
       "under fp16? no."},
      {"Gradients over micro-batches",
       {micro_batches(0.004)},
       "0.001 over 1 micro-batches, 0.004 over 64",
       {micro_batches(0.009)},
       "0.009 over 64"},
      {"Mixed precision: timings and trends",
       {step("fp32", 8), step("bf16", 4)},
       "2.00x as fast",
       {step("fp32", 12), step("bf16", 4)},
       "3.00x as fast"},
      {"Memory timelines of forward and of a full step",
       {memory("full", "fp32", 8)},
       "the peak is 8 MiB, most of it activation",
       {memory("full", "fp32", 9)},
       "the peak is 9 MiB"},
      {"Peak memory of each size",
       {memory("forward", "fp32", 4), memory("full", "fp32", 8)},
       "holds 2.00x as much",
       {memory("forward", "fp32", 4), memory("full", "fp32", 12)},
       "holds 3.00x as much"},
      {"What mixed precision changes",
       {memory("full", "fp32", 8), memory("full", "bf16", 4)},
       "is 50 % of that in fp32",
       {memory("full", "fp32", 8), memory("full", "bf16", 6)},
       "is 75 % of"},
      {"A tensor of the residual stream", {memory("full", "fp32", 8)}, "in fp32 is 256 KiB", {}, ""},
      {"The largest allocations",
       {memory("full", "fp32", 8)},
       "3 of 2 MiB, allocated by `linear` (activation)",
       {memory("full", "fp32", 16)},
       "3 of 4 MiB"},
      {"Growth with the context",
       {scaling(1.98)},
       "to the power of 1.98",
       {scaling(1.01)},
       "to the power of 1.01"},
      {"Recomputation in place of memory",
       {recompute(4)},
       "recompute block peaks at 4 MiB in place of 16 MiB, for 1.33x the operations",
       {recompute(2)},
       "peaks at 2 MiB"},
      {"Attention at different scales",
       {cell("composed", 64, 4), cell("flash", 64, 2)},
       "flash attention is 2.00x as fast",
       {cell("composed", 64, 6), cell("flash", 64, 2)},
       "3.00x as fast"},
      {"FlashAttention-2 as named variants of one op",
       {cell("flash", 64, 2)},
       "reaches 50 % of its roofline over 1 pass",
       {cell("flash", 64, 2), cell("flash", 128, 2)},
       "over 2 passes"},
      {"Causal masking",
       {cell("flash", 64, 4), cell("flash", 64, 2, true)},
       "is 2.00x as fast as without",
       {cell("flash", 64, 3), cell("flash", 64, 2, true)},
       "1.50x as fast"},
      {"The whole model, compiled",
       {compiled(step("fp32", 8), "off"), compiled(step("fp32", 4), "on")},
       "the step is 2.00x as fast",
       {compiled(step("fp32", 8), "off"), compiled(step("fp32", 2), "on")},
       "4.00x as fast"},
      {"Compiled against plain attention",
       {compiled(cell("composed", 64, 4), "off"), compiled(cell("composed", 64, 2), "on")},
       "2.00x as fast",
       {},
       ""},
      {"All-reduce on one node",
       {reduce("1 MB", 1e6, 0.5), reduce("10 MB", 1e7, 4)},
       "from 1 MB in 0.5 ms to 10 MB in 4 ms",
       {reduce("1 MB", 1e6, 0.5), reduce("10 MB", 1e7, 5)},
       "10 MB in 5 ms"},
      {"Naive data parallelism",
       {ddp("naive", 8)},
       "8 ms a step, 25 % of it in 12 sums",
       {ddp("naive", 9)},
       "9 ms a step"},
      {"What naive data parallelism costs",
       {ddp("naive", 8)},
       "each rank sends 1 MiB a step for 1 MiB of gradients; a ring's 2 (N-1)/N S is 1 MiB (the same)",
       {},
       ""},
      {"Fewer calls: flat gradients",
       {ddp("naive", 8), ddp("flat", 4)},
       "flat 2.00x as fast as naive (calls: 1 in place of 12",
       {ddp("naive", 8), ddp("flat", 2)},
       "4.00x as fast"},
      {"Overlap with backward",
       {ddp("naive", 8), ddp("overlap", 4)},
       "overlap 2.00x as fast",
       {ddp("naive", 8), ddp("overlap", 2)},
       "4.00x as fast"},
      {"Pictures of both",
       {ddp("naive", 8), ddp("overlap", 4)},
       "1 ms by naive and 0.5 ms by overlap",
       {},
       ""},
      {"Buckets of gradients",
       {ddp("overlap", 8), ddp("bucketed", 4, 1)},
       "bucketed 2.00x as fast as overlap",
       {},
       ""},
      {"Bucket sizes",
       {ddp("bucketed", 4, 1), ddp("bucketed", 6, 10)},
       "of 2 bucket sizes 1 MB is fastest (4 ms), 10 MB slowest",
       {ddp("bucketed", 8, 1), ddp("bucketed", 6, 10)},
       "10 MB is fastest"},
      {"The best bucket, by equation",
       {ddp("naive", 8), reduce("1 MB", 1e6, 0.5), reduce("10 MB", 1e7, 4), reduce("100 MB", 1e8, 39)},
       "the best bucket of 1.05 MB of gradients is ",
       {ddp("naive", 8)},
       ""},
      {"Memory with the optimizer's state sharded",
       {zero("0", 4, 16), zero("1", 5, 8)},
       "stage 1 on 2 ranks keeps 8 MiB of state on a rank, 50 % less",
       {zero("0", 4, 16), zero("1", 5, 12)},
       "25 % less"},
      {"Time with the optimizer's state sharded",
       {zero("0", 4, 16), zero("1", 5, 8)},
       "stage 1 takes 5 ms a step, stage 0 4 ms (0.80x)",
       {zero("0", 4, 16), zero("1", 8, 8)},
       "(0.50x)"},
      {"Against the ZeRO paper",
       {zero("1", 5, 8)},
       "sends 1 MiB a step; the paper's 2 P (N-1)/N is 1 MiB",
       {},
       ""},
      {"Memory with everything sharded",
       {zero("0", 4, 16), zero("3", 5, 4)},
       "stage 3 on 2 ranks keeps 4 MiB",
       {zero("0", 4, 16), zero("3", 5, 8)},
       "keeps 8 MiB"},
      {"Were the weights there in time?", {fsdp(21)}, "21 of 34 gathers", {fsdp(34)}, "34 of 34 gathers"},
      {"Layer by layer", {fsdp(21)}, "layers.0 in forward, 13 us", {fsdp(34)}, "Every gather was finished"},
      {"Layouts that were run",
       {layout("ddp", 4, 5), layout("tp", 6, 3)},
       "ddp was fastest with 4 ms; predicted fastest was tp",
       {layout("ddp", 8, 5), layout("tp", 6, 3)},
       "tp was fastest with 6 ms; predicted fastest was tp, the same"},
      {"Losses of the runs here",
       {training(3.25)},
       "demo: loss 5.500 at the first step, 3.250 at step 60",
       {training(2.5)},
       "2.500 at step 60"},
      {"The fused kernels, forward and backward", {}, "", {}, ""},
  };
}

std::vector<Question> all_questions() {
  std::vector<Question> all;
  for (const Chapter& c : all_chapters()) all.insert(all.end(), c.questions.begin(), c.questions.end());
  return all;
}

std::string said(std::string_view heading, const std::vector<Json>& rows) {
  for (const Question& q : all_questions())
    if (q.heading == heading) {
      const AnsweredQuestion a = answer_question(q, rows, "b1");
      return fmt::format("{}", fmt::join(a.answer.sentences, " "));
    }
  return "no such question";
}

TEST(Chapters, SentencesComeFromTheRows) {
  for (const Case& c : cases()) {
    if (c.rows.empty()) continue;
    EXPECT_TRUE(has(said(c.heading, c.rows), c.says)) << c.heading << ": " << said(c.heading, c.rows);
    const std::string other = said(c.heading, c.others);
    EXPECT_TRUE(has(other, c.says_then)) << c.heading << ": " << other;
    EXPECT_FALSE(has(other, c.says)) << c.heading << " says the same of other rows";
    EXPECT_EQ(said(c.heading, {}), "") << c.heading << " says something of no rows";
  }
}

TEST(Chapters, EveryQuestionThatNeedsRowsHasACase) {
  std::set<std::string_view> tested;
  for (const Case& c : cases()) tested.insert(c.heading);
  for (const Question& q : all_questions()) {
    EXPECT_EQ(tested.contains(q.heading), !q.worked_out()) << q.heading;
    EXPECT_TRUE(q.fill.starts_with("kiln ")) << q.heading;
  }
}

TEST(Chapters, WhatNeedsNoRowsIsWorkedOut) {
  for (const Question& q : all_questions()) {
    if (!q.worked_out()) continue;
    const AnsweredQuestion a = answer_question(q, {}, "b1");
    EXPECT_EQ(a.state, AnswerState::worked_out) << q.heading;
    EXPECT_FALSE(a.answer.tables.empty()) << q.heading;
  }
}

TEST(Chapters, WhatCannotBeReliedOnIsMarked) {
  const Question q =
      *std::find_if(benchmarking_chapter().questions.begin(), benchmarking_chapter().questions.end(),
                    [](const Question& each) { return each.heading == "The benchmark"; });
  std::vector<Json> rows = {step("fp32", 8)};
  EXPECT_EQ(answer_question(q, rows, "b1").state, AnswerState::measured);
  EXPECT_EQ(answer_question(q, rows, "b2").state, AnswerState::stale);
  EXPECT_EQ(answer_question(q, {}, "b1").state, AnswerState::missing);
  rows[0]["gate"] = "not-verified";
  const AnsweredQuestion unverified = answer_question(q, rows, "b1");
  EXPECT_EQ(unverified.state, AnswerState::unverified);
  EXPECT_TRUE(unverified.answer.empty()) << "times that were compared with nothing are not shown";
}

TEST(Chapters, RowsOfTwoMachinesNeverAnswerOneQuestion) {
  std::vector<Json> rows = {step("fp32", 8), step("bf16", 4)};
  rows[1]["host"]["device_name"] = "Other";
  EXPECT_EQ(said("Mixed precision: timings and trends", rows), "");
  rows[1]["host"]["device_name"] = "Machine";
  rows[1]["build_id"] = "b2";
  EXPECT_EQ(said("Mixed precision: timings and trends", rows), "") << "nor of two builds";
}

TEST(Chapters, RowsOfAnyShapeAreSurvived) {
  std::vector<Json> rows;
  for (const Question& q : all_questions())
    for (const std::string_view command : q.commands) {
      rows.push_back({{"command", command}, {"p50_ms", "fast"}, {"host", 3}});
      rows.push_back(stored(std::string(command).c_str(),
                            {{"p50_ms", 1.0},   {"measured_ms", 1.0},  {"roofline_ms", 1.0},
                             {"traced_ms", 1},  {"by_op", {1, 2}},     {"causes", {1}},
                             {"layers", {3}},   {"rows", {1}},         {"runs", {{{"tensors", {1}}}}},
                             {"exact", 1},      {"series", {1}},       {"points", {1, 2}},
                             {"largest", {5}},  {"files", {5}},        {"attention", {1}},
                             {"top_kernel", 3}, {"matmul_share", {1}}, {"memory", 7},
                             {"steps_ms", 3},   {"first_step", 2},     {"phases", 3}}));
    }
  for (const AnsweredChapter& c : answer_chapters(rows, "b1")) EXPECT_FALSE(c.questions.empty());
}

}  // namespace
}  // namespace kiln
