// Matmuls on AMX tiles, for kernels that pack their own operands.
#pragma once

#include <cstdint>

namespace kiln {

// C[M, N] (=|+=) A[M, K] B[K, N] in fp32 from bf16. M, N and K are multiples of 32.
struct AmxProduct {
  int64_t M, N, K;
  const uint16_t* a;  // [M][a_row] bf16
  int64_t a_row;
  const uint32_t*
      b;  // [K / 2][b_row]: steps 2k and 2k + 1 of a column in one 32-bit value, the first one low
  int64_t b_row;
  float* c;  // [M][c_row]
  int64_t c_row;
  bool add;
};

// The thread's tiles must be shaped (amx_enter) before, and released (amx_leave) before it does anything else
// for long: an unreleased tile makes every context switch slower.
void amx_enter();
void amx_leave();
void amx_product(const AmxProduct& p);

}  // namespace kiln
