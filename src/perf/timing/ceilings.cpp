#include "perf/timing/ceilings.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "device/backend.h"
#include "device/cpu/amx.h"
#include "device/cpu/cpu_features.h"

#define KILN_SIMD_FILE "perf/timing/ceilings_simd.h"
#include "device/cpu/simd_each.h"

namespace kiln {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMiB = 1 << 20;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Results go here, so that no loop can be left out as useless.
std::atomic<float> sink;

// Does `rounds` of something in registers and returns a value that depends on all of it.
using Rounds = float (*)(int64_t rounds, float m, float a);

// --- bf16 dot products: 16 lanes of two multiply-adds

constexpr int kDotSums = 20;
constexpr double kDotFlops = 2.0 * 32 * kDotSums;

__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16"))) float dot_rounds(int64_t rounds,
                                                                                          float m, float a) {
  __m512 s[kDotSums];
  for (int i = 0; i < kDotSums; ++i) s[i] = _mm512_set1_ps(static_cast<float>(i));
  const __m512bh x = _mm512_cvtne2ps_pbh(_mm512_set1_ps(m), _mm512_set1_ps(m));
  const __m512bh y = _mm512_cvtne2ps_pbh(_mm512_set1_ps(a), _mm512_set1_ps(a));
  for (int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 20
    for (int i = 0; i < kDotSums; ++i) s[i] = _mm512_dpbf16_ps(s[i], x, y);
  }
  float total = 0;
  for (const __m512& v : s) total += _mm512_cvtss_f32(v);
  return total;
}

// --- AMX: a 2 x 2 block of tiles, each product 16 x 16 x 32

constexpr double kTileFlops = 4 * 2.0 * 16 * 16 * 32;

__attribute__((target("amx-tile,amx-bf16"))) float tile_rounds(int64_t rounds, float m, float a) {
  alignas(64) bf16 x[16 * 32];
  alignas(64) bf16 y[16 * 32];
  alignas(64) float out[16 * 16];
  std::fill(std::begin(x), std::end(x), static_cast<bf16>(m));
  std::fill(std::begin(y), std::end(y), static_cast<bf16>(a));
  amx_enter();  // of this thread; released before other work
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, x, 64);
  _tile_loadd(5, x, 64);
  _tile_loadd(6, y, 64);
  _tile_loadd(7, y, 64);
  for (int64_t r = 0; r < rounds; ++r) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  float total = 0;
  _tile_stored(0, out, 64);
  total += out[0];
  _tile_stored(1, out, 64);
  total += out[0];
  _tile_stored(2, out, 64);
  total += out[0];
  _tile_stored(3, out, 64);
  total += out[0];
  amx_leave();
  return total;
}

// --- the loop around them

// Rounds per second that `threads` threads reach in total, the best of many runs of a millisecond; of several
// at least, however long other programs keep them waiting. They start at the same moment: on a busy machine
// one would else do all the work before the others have woken up. Time runs until the last has ended: threads
// that share a core alternate, each at full speed by its own clock.
double best_rate(ThreadPool& pool, int threads, double seconds, const std::function<void(int64_t)>& run) {
  constexpr double kLongEnough = 1e-3, kMostTimes = 40;
  constexpr int kLeastRuns = 5;
  const Clock::time_point begin = Clock::now();
  std::vector<Clock::time_point> from(static_cast<std::size_t>(threads)), to(from.size());
  int64_t n = 256;
  double best = 0, shortest = 1e9;  // of runs of n rounds: one that was interrupted says nothing about them
  int runs = 0;
  do {
    std::atomic<int> arrived{0};
    auto one = [&](int64_t index, int64_t) {
      arrived.fetch_add(1);
      while (arrived.load() < threads) std::this_thread::yield();
      from[static_cast<std::size_t>(index)] = Clock::now();
      run(n);
      to[static_cast<std::size_t>(index)] = Clock::now();
    };
    threads == 1 ? one(0, 1) : pool.parallel_for(threads, 1, one);
    const std::chrono::duration<double> span =
        *std::max_element(to.begin(), to.end()) - *std::min_element(from.begin(), from.end());
    const double took = std::max(span.count(), 1e-9);
    best = std::max(best, static_cast<double>(n) * threads / took);
    shortest = std::min(shortest, took);
    ++runs;
    if (shortest < kLongEnough) {
      n *= shortest < kLongEnough / 8 ? 8 : 2;
      shortest = 1e9;
      runs = 0;
    }
  } while (seconds_since(begin) < seconds ||
           (runs < kLeastRuns && seconds_since(begin) < kMostTimes * seconds));
  return best;
}

Ceiling rounds_ceiling(ThreadPool& pool, const CeilingOptions& o, Rounds rounds, double flops_per_round) {
  auto work = [&](int64_t n) { sink.store(rounds(n, 0.999f, 0.001f), std::memory_order_relaxed); };
  Ceiling c;
  c.all = flops_per_round * best_rate(pool, pool.threads(), o.seconds_each, work);
  if (o.one_thread) c.one = flops_per_round * best_rate(pool, 1, o.seconds_each, work);
  if (pool.threads() == 1) c.one = c.all = std::max(c.one, c.all);
  return c;
}

std::size_t copy_bytes() { return std::clamp(2 * last_level_cache_bytes(), 64 * kMiB, 256 * kMiB); }

Ceiling copy_ceiling(ThreadPool& pool, const CeilingOptions& o) {
  const std::size_t bytes = copy_bytes();
  // As tensors are allocated, which means huge pages: with small ones a copy ran at 60 % of this (Zen 4). Not
  // zeroed by the allocation: every thread touches its own part first, where the machine has more than one
  // memory.
  const std::unique_ptr<Backend> memory = make_cpu_backend();
  auto release = [&](std::byte* p) { memory->release(p); };
  using Block = std::unique_ptr<std::byte, decltype(release)>;
  const Block from(static_cast<std::byte*>(memory->allocate(bytes)), release);
  const Block to(static_cast<std::byte*>(memory->allocate(bytes)), release);
  if (!from || !to) throw Error(cat("no memory for ", 2 * bytes, " bytes to measure a copy with"));
  constexpr std::size_t kPiece = 4 << 20;
  const auto pieces = static_cast<int64_t>(bytes / kPiece);
  const std::size_t copied = static_cast<std::size_t>(pieces) * kPiece;
  auto each = [&](auto f) {
    pool.parallel_for(pieces, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) f(static_cast<std::size_t>(i) * kPiece);
    });
  };
  each([&](std::size_t at) {
    std::memset(from.get() + at, 1, kPiece);
    std::memset(to.get() + at, 2, kPiece);
  });
  auto copy = [&](std::size_t at) { std::memcpy(to.get() + at, from.get() + at, kPiece); };
  auto best = [&](const std::function<void()>& once) {
    const Clock::time_point begin = Clock::now();
    double rate = 0;
    do {
      const Clock::time_point start = Clock::now();
      once();
      rate = std::max(rate, 2 * static_cast<double>(copied) / seconds_since(start));
    } while (seconds_since(begin) < 2 * o.seconds_each);
    return rate;
  };
  Ceiling c;
  c.all = best([&] { each(copy); });
  if (o.one_thread) {
    c.one = best([&] {
      for (int64_t i = 0; i < pieces; ++i) copy(static_cast<std::size_t>(i) * kPiece);
    });
  }
  const std::size_t middle = bytes / 2;
  sink.store(static_cast<float>(to.get()[middle]), std::memory_order_relaxed);
  return c;
}

Ceiling larger(Ceiling a, Ceiling b) { return {std::max(a.one, b.one), std::max(a.all, b.all)}; }

}  // namespace

CpuCeilings measure_cpu_ceilings(ThreadPool& pool, CpuIsa isa, const CeilingOptions& o) {
  const Clock::time_point begin = Clock::now();
  CpuCeilings c;
  c.threads = pool.threads();
  struct Level {
    CpuIsa isa;
    Rounds rounds;
    double flops;
  };
  for (const Level& level : {Level{CpuIsa::plain, simd_plain::fma_rounds, simd_plain::kCeilingFlops},
                             Level{CpuIsa::avx2, simd_avx2::fma_rounds, simd_avx2::kCeilingFlops},
                             Level{CpuIsa::avx512, simd_avx512::fma_rounds, simd_avx512::kCeilingFlops}}) {
    if (o.flops && level.isa <= isa)
      c.fma.push_back({level.isa, rounds_ceiling(pool, o, level.rounds, level.flops)});
  }
  if (o.flops && isa >= CpuIsa::avx512_bf16) c.bf16_dot = rounds_ceiling(pool, o, dot_rounds, kDotFlops);
  if (o.flops && isa >= CpuIsa::amx) c.amx = rounds_ceiling(pool, o, tile_rounds, kTileFlops);
  if (o.copy) c.copy = copy_ceiling(pool, o);
  c.seconds = seconds_since(begin);
  return c;
}

// The kernel's answer: sysconf() multiplies an AMD core's share by the cores of the whole socket.
std::size_t last_level_cache_bytes() {
  for (int index = 4; index >= 2; --index) {
    std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/size");
    std::size_t kib = 0;
    char unit = 0;
    if (file >> kib >> unit && unit == 'K' && kib > 0 && kib < (std::size_t{1} << 30)) return kib * 1024;
  }
  return 32 * kMiB;
}

CpuCeilings best_of(const CpuCeilings& a, const CpuCeilings& b) {
  CpuCeilings c = a;
  c.copy = larger(a.copy, b.copy);
  for (std::size_t i = 0; i < std::min(a.fma.size(), b.fma.size()); ++i)
    c.fma[i].flops = larger(a.fma[i].flops, b.fma[i].flops);
  if (a.bf16_dot && b.bf16_dot) c.bf16_dot = larger(*a.bf16_dot, *b.bf16_dot);
  if (a.amx && b.amx) c.amx = larger(*a.amx, *b.amx);
  c.seconds = a.seconds + b.seconds;
  return c;
}

Ceiling CpuCeilings::flops_for(DType dtype, CpuIsa isa) const {
  Ceiling best;
  for (const Fma& f : fma) {
    if (f.isa <= isa) best = larger(best, f.flops);
  }
  if (dtype == DType::bf16) {
    if (bf16_dot && isa >= CpuIsa::avx512_bf16) best = larger(best, *bf16_dot);
    if (amx && isa >= CpuIsa::amx) best = larger(best, *amx);
  }
  if (dtype == DType::f64) best = {best.one / 2, best.all / 2};  // half as many lanes
  return best;
}

}  // namespace kiln
