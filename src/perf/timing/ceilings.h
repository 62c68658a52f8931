// This CPU's peak rates, measured in this process: copies, and the FMA rate of each instruction
// set. Benches compare their figures with these, from the same process, because the same machine gives
// other numbers on another day.
#pragma once

#include <optional>
#include <vector>

#include "base/dtype.h"
#include "base/thread_pool.h"
#include "device/cpu/isa.h"

namespace kiln {

// Rates per second, the best of several samples: with one thread, and with all of the pool.
struct Ceiling {
  double one = 0;
  double all = 0;
};

struct CpuCeilings {
  int threads = 1;
  Ceiling copy;  // bytes read + bytes written, buffers several times the last-level cache
  // Multiplications and additions, registers only.
  struct Fma {
    CpuIsa isa;  // plain, avx2 or avx512
    Ceiling flops;
  };
  std::vector<Fma> fma;             // every level up to the one allowed
  std::optional<Ceiling> bf16_dot;  // vdpbf16ps
  std::optional<Ceiling> amx;       // tdpbf16ps
  double seconds = 0;               // what measuring took

  // Of a kernel that multiplies numbers of this dtype with what `isa` allows.
  Ceiling flops_for(DType dtype, CpuIsa isa) const;
};

struct CeilingOptions {
  double seconds_each = 0.05;  // per figure
  bool one_thread = true;      // measure `one` as well as `all`
  bool copy = true;   // measure the copy too; off: no large buffers, and a tenth of a second in total
  bool flops = true;  // measure multiply-adds; off: `fma` stays empty
};

// Executes nothing above `isa`. Takes under 1.5 s and, for the copy, two buffers of max(64 MiB, 2 x L3), at
// most 256 MiB each.
CpuCeilings measure_cpu_ceilings(ThreadPool& pool, CpuIsa isa, const CeilingOptions& options = {});

// Of the largest cache a core of this machine has; 32 MiB where the machine does not say.
std::size_t last_level_cache_bytes();

// The larger of each: a ceiling measured twice is at least the better of the two.
CpuCeilings best_of(const CpuCeilings& a, const CpuCeilings& b);

}  // namespace kiln
