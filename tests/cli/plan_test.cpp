// kiln plan as it is typed: what cannot be is answered in one line that says what to do.
#include <gtest/gtest.h>

#include "support/said.h"

namespace kiln::cli {
namespace {

std::string said_of_plan(std::vector<std::string> args) {
  args.insert(args.begin(), "plan");
  return said(args);
}

void expect(const std::vector<std::string>& args, const std::string& what, const std::string& hint) {
  const std::string answer = said_of_plan(args);
  EXPECT_NE(answer.find(what), std::string::npos) << answer;
  EXPECT_NE(answer.find(hint), std::string::npos) << answer;
}

TEST(CliPlan, HeadsThatDoNotDivide) {
  expect({"--devices", "8", "--tp", "8"}, "12 heads do not divide among 8 tensor-parallel ranks",
         "choose a number of ranks that divides heads");
  expect({"--devices", "24", "--tp", "24"}, "--tp is 24, more than the model's 12 heads", "take at most 12");
}

TEST(CliPlan, DevicesThatAreNoMultiple) {
  expect({"--devices", "8", "--tp", "3"}, "--tp is 3, of which 8 devices are no multiple", "9 devices");
  expect({"--devices", "8", "--pp", "3"}, "--pp is 3, of which 8 devices are no multiple", "9 devices");
  expect({"--devices", "10", "--pp", "5"}, "12 layers do not divide into 5 stages", "divides the layers");
}

TEST(CliPlan, LinksThatCannotBe) {
  expect({"--link", "latency=1us,bandwidth=-3GB/s"}, "--link: bandwidth is '-3GB/s'; expected 0 or more",
         "bandwidth=10GB/s");
  expect({"--inter-link", "latency=1us,bandwidth=0GB/s"}, "--inter-link: a link of no bandwidth",
         "bandwidth=10GB/s");
}

TEST(CliPlan, UnknownNames) {
  expect({"--hw", "h10"}, "--hw is 'h10'", "did you mean 'h100'?");
  expect({"--strategy", "fsdpp"}, "--strategy is 'fsdpp'; expected some of: ddp", "did you mean 'fsdp'?");
  expect({"--size", "10bb"}, "there is no model size '10bb'", "did you mean '10b'?");
}

TEST(CliPlan, AModelThatCannotFit) {
  expect({"--devices", "2", "--size", "10b", "--precision", "fp32"},
         "10b does not fit on 2 devices of 74.51 GiB: the least is ", "--devices");
}

TEST(CliPlan, TwoBatches) {
  expect({"--batch", "8", "--batch-per-device", "1"}, "--batch and --batch-per-device are both given",
         "of all devices together");
}

}  // namespace
}  // namespace kiln::cli
