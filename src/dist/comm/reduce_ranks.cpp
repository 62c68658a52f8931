#include "dist/comm/reduce_ranks.h"

#include "base/error.h"

#define KILN_SIMD_FILE "dist/comm/reduce_ranks_simd.h"
#include "device/cpu/simd_each.h"

namespace kiln {

void reduce_ranks(Backend& backend, Stream stream, const RankMemory& dst, const RankMemory& src,
                  int64_t count, DType dtype) {
  if (count == 0) return;
  const DeviceTraits traits = backend.traits();
  if (traits.type == DeviceType::cuda) {
    reduce_ranks_cuda(backend, stream, dst, src, count, dtype);
    return;
  }
  with_float(dtype, [&](auto zero) {
    using T = decltype(zero);
    KILN_SIMD_PICK(traits.isa, sum_ranks<T>)(dst, src, count);
  });
}

}  // namespace kiln
