// A kernel made ready for the CPU: which tile is worked on at a time, where each value of a tile stands, and
// the instructions in order. Tiles depend on the kernel alone, so that the bits do too.
#pragma once

#include <span>
#include <vector>

#include "compile/cpu/step.h"
#include "compile/fuse.h"

namespace kiln::compile {

// Where a value of a program is stored: an input, an output, or between two kernels.
struct Memory {
  void* data = nullptr;  // null: not in memory
  int64_t row = 0;       // from one row to the next, in elements
  DType dtype = DType::f32;
  bool add = false;      // an output: to what is there
  bool aliased = false;  // an output that takes the place of an input
};

// Where a tile of an operand stands.
struct TilePlace {
  enum class In : uint8_t { nowhere, memory, scratch, shared, partial, number } in = In::nowhere;
  int value = -1;      // memory: of which value
  int64_t offset = 0;  // scratch: of the register in tiles; shared, partial, number: in elements
};

struct TileStep {
  Step step;  // sizes and kind; the pointers are set for each tile
  int value = -1;
  TilePlace out, a, b, c;
  int of_a = -1, of_b = -1, of_c = -1;  // their values
};

struct TiledKernel {
  std::vector<TileStep> shared, body;
  std::vector<double> numbers;
  int64_t shared_elements = 0;
  int64_t width = 1;  // of the widest value
  int64_t tile_rows = 1, tile_columns = 1;
  int wide_registers = 0, thin_registers = 0;
  int fetcher = -1;           // the instruction of `body` beside which the next tile is fetched
  int64_t partial_width = 0;  // of the sums over all rows, side by side
  std::vector<std::pair<int, int64_t>> sums;  // a column sum, and where its partial begins
};

TiledKernel tile_kernel(const Program& p, const Kernel& k, DType computes, std::span<const Memory> memory);

// Sums over all rows are taken in chunks of these many rows, at most 64 chunks.
int64_t sum_chunk_rows(const Program& p, const Kernel& k);
// Scratch for the chunks' sums.
std::size_t partial_bytes(const Program& p, const Kernel& k, DType computes);

}  // namespace kiln::compile
