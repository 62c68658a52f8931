#include "studies/precision/toy_model_study.h"

#include <gtest/gtest.h>

#include <map>

namespace kiln {
namespace {

std::map<std::string, DType> dtypes_of(const ToyModelRun& run) {
  std::map<std::string, DType> dtypes;
  for (const ToyTensor& t : run.tensors) dtypes[t.what] = t.dtype;
  return dtypes;
}

// What torch.autocast answers for the same model: weights, norm output, loss and gradients of weights in
// fp32, what a matmul writes in 16 bits.
TEST(ToyModelStudy, AutocastKeepsWeightsNormLossAndGradientsInFp32) {
  const ToyModelReport report = toy_model_study({});
  ASSERT_EQ(report.runs.size(), 3u);
  for (const ToyModelRun& run : report.runs) {
    std::map<std::string, DType> seen = dtypes_of(run);
    const DType narrow = run.policy.compute;
    for (const char* what : {"fc1 output", "ReLU output", "logits", "fc1.weight in its matmul",
                             "fc2.weight in its matmul", "gradient of logits", "gradient of fc1 output"})
      EXPECT_EQ(seen.at(what), narrow) << what;
    for (const char* what : {"fc1.weight", "norm.weight", "norm.bias", "fc2.weight", "norm mean", "norm rstd",
                             "norm output", "loss", "norm.weight in the norm", "gradient of fc1.weight",
                             "gradient of norm.weight", "gradient of fc2.weight"})
      EXPECT_EQ(seen.at(what), DType::f32) << what;
    EXPECT_TRUE(run.as_predicted());
  }
  EXPECT_EQ(report.runs[0].policy.compute, DType::f32);
  EXPECT_EQ(report.runs[1].policy.compute, DType::f16);
  EXPECT_EQ(report.runs[2].policy.compute, DType::bf16);
}

// Rounding shows in the figures, in the order of the dtypes' digits; a unit that ReLU switched would hide it.
TEST(ToyModelStudy, ErrorsAreOfTheSizeOfARounding) {
  int compared = 0;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const ToyModelReport report = toy_model_study({.batch = 16, .in = 7, .seed = seed});
    EXPECT_EQ(report.runs[0].grad_error, 0);
    EXPECT_EQ(report.runs[0].switched, 0);
    for (const ToyModelRun& run : report.runs) {
      if (run.policy.compute == DType::f32 || run.switched > 0) continue;
      EXPECT_GT(run.grad_error, 0.1 * run.floor);
      EXPECT_LT(run.grad_error, 20 * run.floor);
      EXPECT_LT(run.loss_error, 5 * run.floor);
      ++compared;
    }
  }
  EXPECT_GE(compared, 8);
}

TEST(ToyModelStudy, FollowsItsSizes) {
  const ToyModelReport report = toy_model_study({.batch = 3, .in = 9, .hidden = 11, .classes = 2});
  for (const ToyTensor& t : report.runs[1].tensors) {
    if (t.what == "fc1 output") {
      EXPECT_EQ(t.shape, "[3, 11]");
    }
    if (t.what == "logits") {
      EXPECT_EQ(t.shape, "[3, 2]");
    }
  }
}

TEST(ToyModelStudy, ADtypeThePolicyDoesNotPredictIsSeen) {
  ToyModelRun run = toy_model_study({}).runs[1];
  run.tensors[3].dtype = DType::bf16;
  EXPECT_FALSE(run.as_predicted());
}

}  // namespace
}  // namespace kiln
