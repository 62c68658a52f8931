// Kernels that walk a [rows, cols] matrix piece by piece, a piece being what a thread moves in one access.
// Pieces are numbered through the whole matrix, so short rows fill their blocks as well as long ones. A
// thread has several, a block's width apart: all of them are read before the first is written, so that enough
// reads are under way.
#pragma once

#include "ops/cuda_device/rows.cuh"

namespace kiln {

struct PieceAt {
  int64_t row, piece;  // the piece's number in its row
  bool inside;         // false: beyond the matrix
};

// This thread's piece k of kPieces. A matrix whose numbers fit into 32 bits divides in them: several times
// faster, and a division is a good part of what these kernels compute.
template <int kPieces>
__device__ PieceAt piece_at(int k, int64_t rows, int64_t pieces_per_row) {
  const int64_t at = (static_cast<int64_t>(blockIdx.x) * kPieces + k) * blockDim.x + threadIdx.x;
  const int64_t all = rows * pieces_per_row;
  if (at >= all) return {0, 0, false};
  if (rows == 1) return {0, at, true};
  if (all <= 0xffffffffLL) {
    const auto n = static_cast<uint32_t>(at), width = static_cast<uint32_t>(pieces_per_row);
    return {n / width, n % width, true};
  }
  return {at / pieces_per_row, at % pieces_per_row, true};
}

template <int kPieces>
Grid piece_grid(int64_t rows, int64_t pieces_per_row) {
  return {blocks_for(rows * pieces_per_row, int64_t{kThreads} * kPieces)};
}

// Whether a matrix can be walked as one long row.
template <class... Tensors>
bool all_contiguous(const Tensors&... t) {
  return ((!t.defined() || t.contiguous()) && ...);
}

}  // namespace kiln
