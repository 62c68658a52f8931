// The epilogue of flash_hopper's backward: dk and dv of a key block, and what was not finite once more.
#pragma once

#include "ops/attention/hopper/dq_epilogue.cuh"

namespace kiln::hopper {

// dk and dv of a warp's 16 keys, through the memory of k, and of v or ds: behind a barrier after which no
// warp reads these. The warp writes its own rows alone, so that nobody waits for it.
template <BackwardBlockShape Shape>
__device__ void write_dk_dv(const BackwardParams<typename Shape::T>& a, BackwardSmem<Shape>& m,
                            const typename Shape::KeyBlockT& at, int s, int own,
                            const FragAcc (&dk)[Shape::kD / 8], const FragAcc (&dv)[Shape::kD / 8]) {
  const SeqlenInfo& z = a.seqlen(m);
  const int first = z.first_key + at.j * Shape::kKeys + own, end = z.first_key + z.Tk;
  if (!all_finite(dk) || !all_finite(dv)) {
    if (threadIdx.x % 32 == 0) m.mark(m.non_finite_keys, own / 16, s);
    return;
  }
  if (a.dk.base != nullptr)
    flash::store_strip(a.dk, at.b, at.hkv, z.D, first, end, dk, z.scale, z.scale, m.k[s % 2], own);
  if (a.dv.base != nullptr)
    flash::store_strip(a.dv, at.b, at.hkv, z.D, first, end, dv, 1.0f, 1.0f, m.dv_staging(s), own);
}

// The non-finite slow path, at the end, for what a warp marked. Not where it was marked: the registers this
// takes the matmuls would miss.
template <BackwardBlockShape Shape>
__device__ void redo_non_finite(const BackwardParams<typename Shape::T>& a, BackwardSmem<Shape>& m) {
  constexpr int kD = Shape::kD;
  const SeqlenInfo& z = a.seqlen(m);
  const int warp = static_cast<int>(threadIdx.x) / 32 - 4;  // of the eight
  __syncwarp();
  for (int word = 0; word < kMaxKeyBlocks / 32; ++word) {
    const uint32_t keys = m.non_finite_keys[warp][word], queries = m.non_finite_queries[warp][word];
    for (uint32_t left = keys | queries; left != 0; left &= left - 1) {
      const int bit = __ffs(static_cast<int>(left)) - 1;
      const typename Shape::KeyBlockT at = m.key_block(z, a.scheduler, word * 32 + bit);
      const int first = at.j * Shape::kKeys + warp * 16;
      for (int j = first; (keys >> bit & 1u) != 0 && j < first + 16 && j < z.Tk; ++j) {
        LaneRow<kD> row_dk, row_dv;
        a.non_finite(z).template of_key<kD>(at.b, at.hkv, j, row_dk, row_dv);
        const int row = z.first_key + j;
        if (a.dk.base != nullptr)
          row_dk.put(a.dk.at(at.b, at.hkv, z.D, row), 0, z.D, z.scale, a.dk.accumulate);
        if (a.dv.base != nullptr) row_dv.put(a.dv.at(at.b, at.hkv, z.D, row), 0, z.D, 1.0f, a.dv.accumulate);
      }
      if ((queries >> bit & 1u) == 0) continue;
      with_dq_fragments<Shape>(warp / 4, [&](auto count) {
        for_each_written_tile<Shape>(a, at, [&](const DqTile& tile, DqCounts counts) {
          DqHalfTile<Shape, decltype(count)::value>(a, tile, warp / 4, counts).write_non_finite(a, z);
        });
      });
    }
  }
}

// KeyBlockT s of the block's; `step` steps were made before. Returns how many there are now.

}  // namespace kiln::hopper
