// A GPU's peak rates, measured in this process through the interfaces a run uses: a copy within the device,
// and the matmul of the `linear` op. perf/timing/ceilings.h has the CPU's.
#pragma once

#include <string>
#include <vector>

#include "autograd/rank_context.h"

namespace kiln {

struct ProductCeiling {
  DType dtype = DType::f32;
  std::string variant;
  int64_t size = 0;  // size x size x size
  double flops_per_second = 0;
};

struct DeviceCeilings {
  double copy = 0;  // bytes read + bytes written a second
  std::vector<ProductCeiling> products;
  double seconds = 0;  // what measuring took

  double flops_for(DType dtype) const;  // 0 where it was not measured
};

struct DeviceCeilingOptions {
  std::vector<DType> dtypes = {DType::bf16, DType::f32};
  Bytes copy{std::size_t{1} << 30};  // far over any cache: an H200 has 50 MiB
  int64_t product = 8192;            // of 16-bit types; half of it for wider ones, which are slower
  double seconds_each = 0.1;
};

// Medians. Operands are random numbers: zeros take less power, and a GPU then runs at clocks no training
// sees.
DeviceCeilings measure_device_ceilings(RankContext& ctx, const DeviceCeilingOptions& options = {});

}  // namespace kiln
