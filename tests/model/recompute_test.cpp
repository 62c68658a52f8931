// --recompute by name; that no setting changes a bit; and what each keeps.
#include "model/recompute.h"

#include <gtest/gtest.h>

#include "train/seams.h"

namespace kiln {
namespace {

TEST(Recompute, NamesGoBothWays) {
  for (const Recompute& r :
       {Recompute::none, Recompute::block, Recompute::nested, Recompute::every(2), Recompute::every(1048576)})
    EXPECT_EQ(parse_recompute("--recompute", name_of(r)), r);
  EXPECT_EQ(parse_recompute("--recompute", "every:1"), Recompute::block);
  EXPECT_EQ(parse_recompute("--recompute", "every:12").k, 12);
}

TEST(Recompute, WhatIsNoNumberOfBlocksIsRefusedInOneLine) {
  auto said = [](std::string_view text) {
    try {
      (void)parse_recompute("--recompute", text);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::usage);
      return std::string(e.what()) + " | " + e.hint();
    }
    return std::string("nothing");
  };
  for (const char* text : {"every:0", "every:x", "every:", "every:-1", "every:2.5", "every:2 ", "every: 2",
                           "every:99999999999999999999", "every:1048577"}) {
    EXPECT_EQ(said(text).find(cat("--recompute is '", text, "'; expected every:k with k from 1 to")), 0u)
        << said(text);
  }
  EXPECT_NE(said("blocks").find("did you mean 'block'?"), std::string::npos);
  EXPECT_NE(said("every").find("every:k"), std::string::npos);
  EXPECT_NE(said("").find("expected one of: none, block, every:k, nested"), std::string::npos);
  ModelConfig c;
  c.recompute = Recompute::every(0);
  EXPECT_THROW(check_config(c), Error);
}

TEST(Recompute, SpansOfAnyLengthEndInTheSameBits) {
  for (Precision precision : {Precision::fp32, Precision::bf16, Precision::autocast}) {
    TinyRun run;
    run.precision = precision;
    run.model.layers = 5;
    run.steps = 2;
    const TinyResult plain = train_tiny(on(Device::cpu()), run);
    for (int64_t k : {1, 2, 3, 5, 7}) {
      run.model.recompute = Recompute::every(k);
      EXPECT_TRUE(same_bits(train_tiny(on(Device::cpu()), run), plain)) << k << " " << name_of(precision);
    }
  }
}

// L / k inputs are kept, and the activations of k blocks exist while a span runs again: with long stacks the
// sum falls first and then rises.
TEST(Recompute, MemoryFallsAndThenRisesWithTheLengthOfASpan) {
  TinyRun run;
  run.model.layers = 96;
  run.steps = 1;
  auto activations = [&](const Recompute& r) {
    run.model.recompute = r;
    return train_tiny(on(Device::meta()), run).memory.peak[Tag::activation];
  };
  const std::size_t block = activations(Recompute::block), two = activations(Recompute::every(2)),
                    eight = activations(Recompute::every(8)), half = activations(Recompute::every(48)),
                    whole = activations(Recompute::every(96)), none = activations(Recompute::none);
  EXPECT_LT(two, block);
  EXPECT_LT(two, eight);
  EXPECT_LT(eight, half);
  EXPECT_LT(half, whole);
  EXPECT_LT(half, none);
  EXPECT_LT(block, none / 5);
  EXPECT_LT(activations(Recompute::nested), two);
}

}  // namespace
}  // namespace kiln
