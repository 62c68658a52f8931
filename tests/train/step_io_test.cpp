// StepIo's slots: whatever fails while they are made, nothing of them stays behind.
#include "train/step_io.h"

#include <gtest/gtest.h>

#include "support/watched_backend.h"

namespace kiln {
namespace {

class FailingBackend final : public WatchedBackend {
 public:
  void* allocate_pinned(std::size_t bytes) override {
    if (--pinned_left < 0) return nullptr;
    return WatchedBackend::allocate_pinned(bytes);
  }
  Event make_event() override {
    if (--events_left < 0) throw Error("no more events");
    return WatchedBackend::make_event();
  }
  int pinned_left = 1000, events_left = 1000;
};

TEST(StepIo, SlotsMadeBeforeAFailureAreReleased) {
  for (bool pinned : {false, true}) {
    for (int good = 0; good < StepIo::kSlots; ++good) {
      RankContext ctx(watched<FailingBackend>());
      auto& backend = static_cast<FailingBackend&>(ctx.backend());
      (pinned ? backend.pinned_left : backend.events_left) = good;
      try {
        StepIo io(ctx, 2, 8, 2);
        FAIL() << "made with " << good;
      } catch (const Error& e) {
        EXPECT_NE(std::string(e.what()).find(pinned ? "no pinned host memory" : "no more events"),
                  std::string::npos)
            << e.what();
      }
      EXPECT_EQ(backend.pinned_alive, 0);
      EXPECT_EQ(backend.events_alive, 0);
      EXPECT_EQ(ctx.allocator().stats().live_total, 0U);
    }
  }
}

class CountingBackend final : public WatchedBackend {
 public:
  using WatchedBackend::synchronize;
  void synchronize(Stream) override { ++waits; }
  int waits = 0;
};

// Copies from the slot may still be queued, and the step is begun again in the same one.
TEST(StepIo, BeginningAgainAfterAStepThatBrokeOffWaitsForIt) {
  RankContext ctx(watched<CountingBackend>());
  const auto& backend = static_cast<CountingBackend&>(ctx.backend());
  StepIo io(ctx, 1, 1, 1);
  io.begin(1, 0.1);
  io.end();
  io.begin(2, 0.1);  // and breaks off
  const int before = backend.waits;
  io.begin(2, 0.1);
  EXPECT_GT(backend.waits, before);
  io.end();
  const int after = backend.waits;
  io.begin(3, 0.1);
  EXPECT_EQ(backend.waits, after) << "a step that ended was waited for";
}

TEST(StepIo, ReleasesItsSlotsAtTheEnd) {
  RankContext ctx(watched());
  auto& backend = static_cast<WatchedBackend&>(ctx.backend());
  {
    const StepIo io(ctx, 2, 8, 2);
    EXPECT_EQ(backend.pinned_alive, StepIo::kSlots);
    EXPECT_EQ(backend.events_alive, StepIo::kSlots);
  }
  EXPECT_EQ(backend.pinned_alive, 0);
  EXPECT_EQ(backend.events_alive, 0);
}

}  // namespace
}  // namespace kiln
