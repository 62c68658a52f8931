// Batches copied during the step before: the same bits as without, on a device whose copies come as late
// as they may; slots in order; nothing lost by a step that broke off or must be run again.
#include <gtest/gtest.h>

#include <deque>

#include "support/watched_backend.h"
#include "train/memory_prediction.h"
#include "train/trainer.h"

namespace kiln {
namespace {

// Copies on the third stream, the one that prefetches, run only when they are waited for.
class LateCopies final : public WatchedBackend {
 public:
  void copy_to_device(void* dst, const void* src, std::size_t bytes, Stream s) override {
    if (!is_copies(s)) return WatchedBackend::copy_to_device(dst, src, bytes, s);
    queue_.push_back({dst, src, bytes, nullptr});
  }
  void record(Event e, Stream s) override {
    if (is_copies(s)) queue_.push_back({nullptr, nullptr, 0, e.handle});
    calls.push_back(cat(is_copies(s) ? "copies" : "compute", " record ", number(e)));
  }
  void wait(Stream s, Event e) override {
    if (!is_copies(s)) catch_up(e.handle);
    calls.push_back(cat(is_copies(s) ? "copies" : "compute", " wait ", number(e)));
  }
  using WatchedBackend::synchronize;
  void synchronize(Stream s) override {
    if (is_copies(s)) catch_up(nullptr);
  }

  std::vector<std::string> calls;

 private:
  struct Entry {
    void* dst;
    const void* src;
    std::size_t bytes;
    void* event;
  };
  static bool is_copies(Stream s) { return reinterpret_cast<std::uintptr_t>(s.handle) == 2; }
  static std::uintptr_t number(Event e) { return reinterpret_cast<std::uintptr_t>(e.handle); }

  // Up to where the event was recorded, or all; nothing for one of another stream.
  void catch_up(void* event) {
    bool there = event == nullptr;
    for (const Entry& e : queue_) there = there || e.event == event;
    while (there && !queue_.empty()) {
      const Entry e = queue_.front();
      queue_.pop_front();
      if (e.event == nullptr) WatchedBackend::copy_to_device(e.dst, e.src, e.bytes, {});
      if (event != nullptr && e.event == event) return;
    }
  }

  std::deque<Entry> queue_;
};

TEST(Prefetch, EndsInTheSameBits) {
  for (const int micro_steps : {1, 2, 3, 5}) {
    TinyRun run;
    run.steps = 6;
    run.step.micro_steps = micro_steps;
    run.step.prefetch = false;
    const TinyResult plain = train_tiny(watched(), run);
    run.step.prefetch = true;
    EXPECT_TRUE(same_bits(train_tiny(watched(), run), plain)) << micro_steps;  // copies at once
    EXPECT_TRUE(same_bits(train_tiny(watched<LateCopies>(), run), plain))
        << micro_steps;  // at the last moment
  }
}

TEST(Prefetch, IsOffByItselfWhereThereAreNoStreams) {
  RankContext cpu;
  EXPECT_FALSE(StepIo(cpu, 1, 4, 1).prefetches());
  EXPECT_TRUE(StepIo(cpu, 1, 4, 1, 1, true).prefetches());
  RankOptions options;
  options.device = Device::meta(DeviceType::cuda);
  RankContext gpu(options);
  EXPECT_TRUE(StepIo(gpu, 1, 4, 1).prefetches());
  EXPECT_FALSE(StepIo(gpu, 1, 4, 1, 1, false).prefetches());
}

std::vector<int32_t> read(RankContext& ctx, const Tensor& t) {
  std::vector<int32_t> ids(static_cast<std::size_t>(t.numel()));
  ctx.download(ids.data(), t);
  return ids;
}

// Micro-batch n of four tokens: 10 n, 10 n + 1, ...; targets 100 above.
struct Ids {
  explicit Ids(int32_t n) {
    for (int32_t i = 0; i < 4; ++i) {
      tokens.push_back(10 * n + i);
      targets.push_back(10 * n + i + 100);
    }
  }
  std::vector<int32_t> tokens, targets;
  HostBatch host() const { return {tokens, targets}; }
};

TEST(Prefetch, BringsEachBatchAfterAStepThatBrokeOff) {
  RankContext ctx(watched<LateCopies>());
  StepIo io(ctx, 1, 4, 3, 1, true);
  for (const int broken_after : {0, 1, 2}) {
    const Ids lost(7);
    const std::vector<HostBatch> none(3, lost.host());
    io.begin(1, 0.1);
    io.take(none);
    for (int i = 0; i < broken_after; ++i) io.load(i);
    const Ids a(1), b(2), c(3);
    io.begin(1, 0.1);
    io.take(std::vector<HostBatch>{a.host(), b.host(), c.host()});
    for (int i = 0; i < 3; ++i) {
      io.load(i);
      EXPECT_EQ(read(ctx, io.tokens()), Ids(i + 1).tokens);
      EXPECT_EQ(read(ctx, io.targets()), Ids(i + 1).targets);
    }
    io.reload(1, 1);
    EXPECT_EQ(read(ctx, io.tokens()), b.tokens);
    EXPECT_EQ(read(ctx, io.targets()), b.targets);
    io.end();
  }
}

// The order two streams are held to: nothing is written to a slot before its last reader is past, nothing is
// read from it before the copy is.
TEST(Prefetch, PassesSlotsByEvents) {
  RankContext ctx(watched<LateCopies>());
  auto& backend = static_cast<LateCopies&>(ctx.backend());
  const std::vector<int32_t> batch(8, 1);  // outlives the slots, whose copies come late
  PrefetchSlots slots(ctx, 8);
  const Tensor place = ctx.empty({8}, DType::i32, Tag::data);
  ASSERT_EQ(backend.calls.size(), 2u);  // both slots are free from where the compute stream stands
  const std::string free0 = backend.calls[0].substr(15), free1 = backend.calls[1].substr(15);
  EXPECT_NE(free0, free1);
  backend.calls.clear();
  slots.send(batch.data());
  slots.send(batch.data());
  EXPECT_THROW(slots.send(batch.data()), Error);
  ASSERT_EQ(backend.calls.size(), 4u);
  EXPECT_EQ(backend.calls[0], "copies wait " + free0);
  const std::string ready0 = backend.calls[1].substr(14);
  EXPECT_EQ(backend.calls[2], "copies wait " + free1);
  backend.calls.clear();
  slots.wait();
  slots.move_to(place);
  slots.send(batch.data());
  const std::vector<std::string> expected = {"compute wait " + ready0, "compute record " + free0,
                                             "copies wait " + free0, "copies record " + ready0};
  EXPECT_EQ(backend.calls, expected);
}

TEST(Prefetch, AReplayRunsTheBatchesOfTheBadStep) {
  TinyRun run;
  run.step.micro_steps = 3;
  run.step.prefetch = true;
  for (const int bad_step : {1, 2, 4}) {
    for (const int bad_micro : {0, 1, 2}) {
      for (const bool late : {false, true}) {
        Trainer t(run);
        for (int s = 1; s < bad_step; ++s) t.train(s);
        const auto weights = t.weights();
        auto batches = t.batches(bad_step);
        batches[static_cast<std::size_t>(bad_micro)].tokens[5] = 61;  // not in the vocabulary
        t.train(batches, run.lr);
        const std::string said =
            complaint([&] { late ? (void)t.train(bad_step + 1) : (void)t.step->finish(); });
        EXPECT_EQ(said.find(cat("step ", bad_step, " is not finite: [embedding]")), 0u) << said;
        EXPECT_NE(said.find("element 120"), std::string::npos) << said;  // token 5 of 24 columns
        EXPECT_EQ(t.weights(), weights);
      }
    }
  }
}

TEST(Prefetch, StallsAreToldWhereTheyAreMeasured) {
  TinyRun run;
  run.step.micro_steps = 2;
  {
    Trainer t(run);
    t.train(1);
    t.step->finish();
    EXPECT_FALSE(t.step->stall_ms());
  }
  run.step.prefetch = true;
  Trainer t(run);
  EXPECT_FALSE(t.step->stall_ms());
  t.train(1);
  EXPECT_FALSE(t.step->stall_ms());  // no result yet
  const auto first = t.train(2);
  ASSERT_TRUE(first);
  ASSERT_TRUE(t.step->stall_ms());
  EXPECT_GE(*t.step->stall_ms(), 0);
  t.step->restore(*first);
  t.step->finish();
  EXPECT_FALSE(t.step->stall_ms()) << "an earlier process's step was not measured by this one";
}

TEST(Prefetch, MemoryIsPredictedToTheByte) {
  MemoryRequest request;
  request.model = TinyRun().model;
  request.step.batch = 4;
  request.step.context = 128;
  RankOptions rank;
  rank.threads = 1;
  rank.alloc_mode = AllocMode::caching;
  const std::size_t plain = predict_memory(request, rank).peak[Tag::data];
  for (const int micro_steps : {1, 4}) {
    request.step.micro_steps = micro_steps;
    request.step.prefetch = true;
    EXPECT_EQ(predict_memory(request, rank).peak[Tag::data], plain + 2 * (2 * 4 * 128 * sizeof(int32_t)));
  }
  rank.device = Device::cuda();  // predicted without one
  const std::size_t ahead = predict_memory(request, rank).peak[Tag::data];
  request.step.prefetch.reset();
  EXPECT_EQ(predict_memory(request, rank).peak[Tag::data], ahead);
  request.step.prefetch = false;
  EXPECT_LT(predict_memory(request, rank).peak[Tag::data], ahead);
}

}  // namespace
}  // namespace kiln
