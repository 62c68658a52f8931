// Ranks as threads, run several times, each rank delayed at random: results that depend on arrival order
// show. The delays are seeded.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "base/rng.h"
#include "dist/comm/threads/thread_group.h"

namespace kiln {

inline constexpr int kShuffles = 5;

class Shaker {
 public:
  Shaker(int round, int rank) : key_(philox_key(static_cast<uint64_t>(round), cat("shake rank ", rank))) {}
  // Holds the calling rank up, mostly not at all, at most a third of a millisecond.
  void operator()() {
    const uint32_t r = philox(key_, next_++, 0).x;
    if (r % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds((r / 4) % 300));
  }

 private:
  PhiloxKey key_;
  uint64_t next_ = 0;
};

using ShuffledBody = std::function<void(RankContext&, Communicator&, Shaker&)>;

inline void run_shuffled_ranks(int world, const RankOptions& options, const ShuffledBody& body,
                               const CommOptions& comm = {}) {
  for (int round = 0; round < kShuffles; ++round) {
    run_thread_ranks(
        world, options,
        [&](RankContext& ctx, Communicator& c) {
          Shaker shake(round, ctx.rank());
          shake();
          body(ctx, c, shake);
          shake();
        },
        comm);
  }
}

inline RankOptions one_thread_each(const Device& device = Device::cpu()) {
  RankOptions o;
  o.device = device;
  o.threads = 1;
  return o;
}

}  // namespace kiln
