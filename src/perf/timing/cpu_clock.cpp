#include "perf/timing/cpu_clock.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "base/thread_pool.h"

namespace kiln {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kAdditions = 1 << 20;

// A chain that the compiler must leave as it is.
void chain(uint64_t& x) {
  for (int i = 0; i < kAdditions; i += 8) {
    for (int j = 0; j < 8; ++j) {
      x += 3;
      asm volatile("" : "+r"(x));
    }
  }
}

// The best of many short turns: an interrupted one says nothing of the clock.
double best_rate(double seconds) {
  const auto until = Clock::now() + std::chrono::duration<double>(seconds);
  double best = 0;
  uint64_t x = 0;
  while (Clock::now() < until) {
    const auto begin = Clock::now();
    chain(x);
    best = std::max(best, kAdditions / std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return best;
}

}  // namespace

double cpu_clock_hz(int threads, double seconds) {
  ThreadPool pool(threads);
  std::vector<double> rates(static_cast<std::size_t>(threads));
  pool.parallel_for(threads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) rates[static_cast<std::size_t>(i)] = best_rate(seconds);
  });
  return *std::min_element(rates.begin(), rates.end());
}

}  // namespace kiln
