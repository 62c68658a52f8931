// What --inject takes, and what it says to everything else.
#include "train/inject/injection.h"

#include <gtest/gtest.h>

#include "train/trainer.h"

namespace kiln {
namespace {

std::string refusal(std::string_view text) {
  try {
    (void)parse_injection(text);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::usage);
    return cat(e.what(), " | ", e.hint());
  }
  return "taken";
}

TEST(Injection, EveryKindReadsItsKeys) {
  const Injection kill = parse_injection("kill:rank=1,step=7,point=reduce");
  EXPECT_EQ(kill.kind, FaultKind::kill);
  EXPECT_EQ(kill.rank, 1);
  EXPECT_EQ(kill.step, 7);
  EXPECT_EQ(kill.point, FaultPoint::reduce);
  EXPECT_EQ(kill.text, "kill:rank=1,step=7,point=reduce");
  const Injection nan = parse_injection("nan:step=3,site=bucket,value=inf,tensor=mlp,element=4");
  EXPECT_EQ(nan.kind, FaultKind::nan);
  EXPECT_EQ(nan.site, NanSite::bucket);
  EXPECT_TRUE(nan.infinite);
  EXPECT_EQ(nan.tensor, "mlp");
  EXPECT_EQ(nan.element, 4);
  const Injection slow = parse_injection("slow:rank=1,factor=2.5,until=9");
  EXPECT_EQ(slow.step, 1);
  EXPECT_EQ(slow.until, 9);
  EXPECT_EQ(slow.factor, 2.5);
  EXPECT_EQ(parse_injection("slow").factor, 3);
  const Injection flip = parse_injection("flip:rank=1,step=5,bit=30");
  EXPECT_EQ(flip.kind, FaultKind::flip);
  EXPECT_EQ(flip.bit, 30);
  EXPECT_EQ(parse_injection("enospc:step=10,call=2").call, 2);
  EXPECT_EQ(parse_injection("eio:step=10").kind, FaultKind::eio);
  EXPECT_EQ(parse_injection("stall:step=4,seconds=0.5").seconds, 0.5);
}

TEST(Injection, EveryPointAndExampleIsTaken) {
  for (const std::string_view point : fault_point_names()) {
    const bool outside = point == "init" || point == "finalize";
    const Injection i = parse_injection(cat("kill:", outside ? "" : "step=2,", "point=", point));
    EXPECT_EQ(name_of(i.point), point);
  }
  for (const FaultKindRow& row : fault_kinds()) {
    const Injection i = parse_injection(row.example);
    EXPECT_EQ(i.kind, row.kind) << row.name;
    for (const std::string_view key : row.keys) {
      const auto keys = fault_keys();
      EXPECT_TRUE(std::any_of(keys.begin(), keys.end(), [&](const FaultKeyRow& k) { return k.name == key; }))
          << row.name << " has a key without a row: " << key;
    }
  }
}

TEST(Injection, AMistakeIsNamedWithTheNearestName) {
  EXPECT_EQ(refusal("kil:step=2"),
            "--inject kil:step=2: 'kil' is no kind of fault; expected kill, stall, slow, nan, flip, enospc, "
            "eio or oom | did you mean 'kill'?");
  EXPECT_EQ(
      refusal("kill:rnak=1,step=2"),
      "--inject kill:rnak=1,step=2: kill has no key 'rnak'; it takes rank, step or point | did you mean "
      "'rank'?");
  EXPECT_EQ(refusal("kill:step=2,point=redcue"),
            "--inject kill:step=2,point=redcue: point is 'redcue'; expected one of: init, forward, backward, "
            "reduce, update, save, save.sync, save.manifest, save.publish, save.retire, finalize | did you "
            "mean 'reduce'?");
  EXPECT_EQ(
      refusal("nan:step=2,site=wieght"),
      "--inject nan:step=2,site=wieght: site is 'wieght'; expected one of: activation, gradient, bucket, "
      "weight, loss | did you mean 'weight'?");
  EXPECT_EQ(refusal("slow:factor=0.5"),
            "--inject slow:factor=0.5: factor is '0.5'; expected a number from 1 to 1000 | ");
  EXPECT_EQ(refusal("kill:step=0"),
            "--inject kill:step=0: step is '0'; expected a whole number of 1 or more | ");
  EXPECT_EQ(refusal("kill:step=2,step=3"), "--inject kill:step=2,step=3: 'step' is there twice | ");
  EXPECT_EQ(refusal("kill:step"),
            "--inject kill:step: 'step' has no value | for example --inject kill:rank=1,step=7,point=reduce");
  EXPECT_EQ(refusal("kill"),
            "--inject kill: kill needs a step | for example --inject kill:rank=1,step=7,point=reduce");
  EXPECT_EQ(refusal("kill:step=2,,"),
            "--inject kill:step=2,,: kill has no key ''; it takes rank, step or point | ");
  EXPECT_EQ(refusal("kill:step=2,point=init"),
            "--inject kill:step=2,point=init: point=init is outside of all steps | leave step out");
  EXPECT_EQ(refusal("slow:step=5,until=4"), "--inject slow:step=5,until=4: until is 4, before step 5 | ");
  EXPECT_NE(refusal(""), "taken");
}

std::string misfit(std::string_view text, const InjectedRun& run) {
  const std::vector<Injection> one = {parse_injection(text)};
  return complaint([&] { check_injections(one, run); });
}

TEST(Injection, OneThatCouldNotHappenIsRefused) {
  const InjectedRun run{.ranks = 2, .steps = 10, .save_every = 4, .sums_gradients = true};
  const std::string taken = "nothing was thrown";
  EXPECT_EQ(misfit("kill:rank=2,step=1", run),
            "--inject kill:rank=2,step=1: there is no rank 2; --ranks is 2");
  EXPECT_EQ(misfit("kill:step=11", run), "--inject kill:step=11: step is 11 and --steps is 10");
  EXPECT_EQ(misfit("eio:step=3", run),
            "--inject eio:step=3: no checkpoint is saved after step 3; --save-every is 4");
  EXPECT_EQ(misfit("eio:step=8", run), taken);
  EXPECT_EQ(misfit("kill:step=10,point=save", run), taken) << "after the last step there is a save";
  EXPECT_EQ(misfit("kill:rank=1,step=4,point=save.publish", run),
            "--inject kill:rank=1,step=4,point=save.publish: only rank 0 comes to save.publish");
  EXPECT_EQ(misfit("kill:rank=1,step=4,point=save", run), taken);
  InjectedRun alone = run;
  alone.sums_gradients = false;
  EXPECT_EQ(misfit("nan:step=1,site=bucket", run), taken);
  EXPECT_EQ(misfit("nan:step=1,site=bucket", alone),
            "--inject nan:step=1,site=bucket: nothing is summed over ranks with --strategy none");
  EXPECT_EQ(misfit("kill:step=1,point=reduce", alone),
            "--inject kill:step=1,point=reduce: nothing is summed over ranks with --strategy none");
}

}  // namespace
}  // namespace kiln
