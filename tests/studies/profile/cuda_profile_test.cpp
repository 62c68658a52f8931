// Steps traced on a GPU: kernels found for their ops, launched one by one and replayed as graphs, and by
// events.
#include <gtest/gtest.h>

#include "base/json.h"
#include "studies/profile/profile.h"
#include "studies/profile/render.h"
#include "support/gpu.h"
#include "support/temp_folder.h"

namespace kiln::cli {
namespace {

class CudaProfile : public testing::Test {
 protected:
  void SetUp() override { KILN_NEEDS_GPU(); }

  ProfileRequest little() const {
    ProfileRequest r;
    r.sizes = {find_model_size("nano")};
    r.contexts = {64};
    r.precisions = {Precision::bf16};
    r.batch = 2;
    r.trace = {.warmups = 1, .steps = 3};
    r.phases = {StepPhase::forward, StepPhase::backward, StepPhase::update};
    r.device = Device::cuda();
    r.folder = folder_.path();
    return r;
  }
  static StepProfile run(const ProfileRequest& r) {
    check_profile(r);
    ProfileReport report = run_profile(r, [](const std::string&) {});
    EXPECT_NO_THROW(Json::parse(written(profile_page(report), PageFormat::json)));
    EXPECT_FALSE(written(profile_page(report), PageFormat::text).empty());
    return report.steps.at(0);
  }

  TempFolder folder_;
};

void expect_ops_have_kernels(const Trace& t) {
  std::vector<int> kernels(t.ops.size(), 0);
  for (const TraceSpan& s : t.spans) {
    if (s.op >= 0) ++kernels[static_cast<std::size_t>(s.op)];
  }
  for (std::size_t i = 0; i < t.ops.size(); ++i)
    EXPECT_GT(kernels[i], 0) << t.ops[i].op << " " << t.ops[i].variant << " in " << t.ops[i].scope;
}

TEST_F(CudaProfile, LaunchedKernelsBelongToTheOpsThatLaunchedThem) {
  if (const std::string why = why_no_kernel_times(); !why.empty()) GTEST_SKIP() << why;
  for (const char* preset : {"optimized", "baseline"}) {
    ProfileRequest r = little();
    r.preset = preset;
    r.graph = GraphChoice::off;
    const StepProfile p = run(r);
    ASSERT_TRUE(p.traced()) << p.reason;
    EXPECT_EQ(p.source, TraceSource::cupti);
    EXPECT_FALSE(p.step().replayed);
    EXPECT_GT(p.full.attributed, 0.999);
    expect_ops_have_kernels(p.step());
    EXPECT_EQ(static_cast<int>(p.step().ops.size()), p.planned_ops);
    EXPECT_EQ(p.attention.in_the_step, std::string(preset) == "baseline");
  }
}

TEST_F(CudaProfile, ReplayedKernelsBelongToTheSameOps) {
  if (const std::string why = why_no_kernel_times(); !why.empty()) GTEST_SKIP() << why;
  ProfileRequest r = little();
  r.micro_steps = 2;
  const StepProfile p = run(r);
  ASSERT_TRUE(p.traced()) << p.reason;
  EXPECT_TRUE(p.captured);
  EXPECT_TRUE(p.step().replayed);
  EXPECT_GT(p.full.attributed, 0.999);
  expect_ops_have_kernels(p.step());
  r.graph = GraphChoice::off;
  const StepProfile launched = run(r);
  EXPECT_EQ(launches_of(p.step(), kForward), launches_of(launched.step(), kForward));
  EXPECT_EQ(launches_of(p.step(), kBackward), launches_of(launched.step(), kBackward));
  EXPECT_EQ(launches_of(p.step(), kUpdate), launches_of(launched.step(), kUpdate));
  EXPECT_GT(p.step().memory.size(), 10U);
}

TEST_F(CudaProfile, EventsSeeTheSameOps) {
  ProfileRequest r = little();
  r.source = TraceSource::events;
  const StepProfile p = run(r);
  ASSERT_TRUE(p.traced()) << p.reason;
  EXPECT_EQ(p.source, TraceSource::events);
  EXPECT_EQ(static_cast<int>(p.step().ops.size()), p.planned_ops);
  EXPECT_EQ(p.step().spans.size(), p.step().ops.size());
  for (const TraceSpan& s : p.step().spans) EXPECT_GE(s.us(), 0);
}

TEST_F(CudaProfile, PartsAddUpToTheTracedStep) {
  if (const std::string why = why_no_kernel_times(); !why.empty()) GTEST_SKIP() << why;
  const StepProfile p = run(little());
  ASSERT_TRUE(p.traced()) << p.reason;
  const Dispatch d = dispatch_of(p.step(), p.plain());
  EXPECT_NEAR(d.busy_ms + d.idle_ms, p.step().ms(), 1e-3);
  EXPECT_GT(d.busy_ms, 0);
  EXPECT_GE(d.idle_ms, 0);
}

}  // namespace
}  // namespace kiln::cli
