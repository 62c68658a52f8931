// One instruction of a compiled kernel on the CPU: a loop over a tile that stays in cache, in the vectors of
// the CPU at hand. A kernel is a list of them, run tile by tile.
#pragma once

#include "compile/graph.h"
#include "device/cpu/isa.h"

namespace kiln::compile {

enum class Move : uint8_t { none, load, store, add };  // what is no primitive: between memory and a register

// A tile of an operand, in elements of what the region computes in (load and store: of `dtype` in memory).
struct StepOperand {
  const void* data = nullptr;
  int64_t row = 0;     // from one row to the next; 0: one row for all
  bool walks = false;  // along the columns; else one number a row
};

struct Step {
  Move move = Move::none;
  Prim prim = Prim::constant;
  DType dtype = DType::f32;
  StepOperand a, b, c;
  void* out = nullptr;
  int64_t out_row = 0;
  int64_t rows = 0, cols = 0;
  int64_t first_row = 0, first_column = 0;  // of the tile, in the region
  int64_t size = 0, period = 0;             // as in Value
  double number = 0;
  bool flag = false;
  // What the next tile reads and writes, to be fetched while this instruction computes.
  static constexpr int kFetches = 6;
  struct Fetch {
    const char* from;
    int64_t size;  // of an element
  };
  Fetch fetch[kFetches];
  int fetches = 0;
};

// In fp32, compiled for every instruction set, and the definition in fp64.
using StepFn = void (*)(const Step&);
StepFn step_f32(CpuIsa isa);
void step_f64(const Step& s);

}  // namespace kiln::compile
