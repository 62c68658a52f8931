#include <gtest/gtest.h>

#include <string>

#include "studies/doctor/facts.h"

namespace kiln::cli {
namespace {

DoctorFacts healthy() {
  DoctorFacts facts;
  facts.features.avx2 = facts.features.fma = true;
  facts.gpus = {{.index = 0,
                 .name = "H200",
                 .major = 9,
                 .minor = 0,
                 .driver_version = 13000,
                 .runtime_version = 13000}};
  facts.cublaslt_version = 130000;
  return facts;
}

constexpr const char* kArchs = "90a-real;80";

TEST(Doctor, NoProblemsFound) { EXPECT_TRUE(find_problems(healthy(), true, kArchs, true).empty()); }

TEST(Doctor, NoGpuInACpuBuildIsFineUnlessTheMachineHasOne) {
  DoctorFacts facts = healthy();
  facts.gpus.clear();
  EXPECT_TRUE(find_problems(facts, false, "", false).empty());
  const auto problems = find_problems(facts, false, "", true);
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_NE(problems[0].remedy.find("make cuda"), std::string::npos);
}

TEST(Doctor, GpuOutsideTheBuiltArchitectures) {
  DoctorFacts facts = healthy();
  facts.gpus[0].major = 7;
  facts.gpus[0].minor = 5;
  const auto problems = find_problems(facts, true, kArchs, true);
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_EQ(problems[0].remedy, "build with `make cuda CUDA_ARCHS=75`");
}

TEST(Doctor, EveryProblemHasARemedy) {
  DoctorFacts facts;
  facts.features.amx_blocked = "reason";
  facts.why_no_gpu = "no driver";
  const auto problems = find_problems(facts, true, kArchs, false);
  EXPECT_EQ(problems.size(), 4U);
  for (const Problem& problem : problems) EXPECT_FALSE(problem.remedy.empty()) << problem.what;
}

TEST(Doctor, ExaminesThisMachine) {
  const DoctorFacts facts = examine_machine();
  EXPECT_FALSE(facts.cpu_model.empty());
  EXPECT_EQ(facts.gpus.empty(), !facts.why_no_gpu.empty());
}

}  // namespace
}  // namespace kiln::cli
