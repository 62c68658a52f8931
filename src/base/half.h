// bf16 and fp16 as storage types: arithmetic happens in float, so each is only two conversions.
// The conversions give the same bits on CPU and GPU, but for the payload of a NaN.
#pragma once

#include <cstdint>
#include <cstring>

#include "base/hd.h"

namespace kiln {

KILN_HD inline uint32_t float_bits(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  return u;
}

KILN_HD inline float bits_float(uint32_t u) {
  float f;
  memcpy(&f, &u, 4);
  return f;
}

struct bf16 {
  uint16_t bits = 0;

  bf16() = default;
  KILN_HD explicit bf16(float f) {  // round to nearest even; NaN stays NaN (quiet)
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(f));  // one instruction for the ten below
#else
    uint32_t u = float_bits(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) {
      bits = static_cast<uint16_t>((u >> 16) | 0x40u);
    } else {
      bits = static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
    }
#endif
  }
  KILN_HD explicit operator float() const { return bits_float(static_cast<uint32_t>(bits) << 16); }
};

struct fp16 {
  uint16_t bits = 0;

  fp16() = default;
  KILN_HD explicit fp16(float f) { bits = from_float(f); }
  KILN_HD explicit operator float() const { return to_float(bits); }

 private:
  KILN_HD static uint16_t from_float(float f) {
#ifdef __CUDA_ARCH__
    uint16_t h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
    return h;
#else
    uint32_t u = float_bits(f);
    uint16_t sign = static_cast<uint16_t>((u >> 16) & 0x8000u);
    u &= 0x7fffffffu;
    if (u > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);   // NaN
    if (u >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // rounds to 65536 or more: Inf
    if (u < 0x38800000u) {  // subnormal result: let the float adder round to a multiple of 2^-24
      float magnitude = bits_float(u) + 0.5f;
      return static_cast<uint16_t>(sign | (float_bits(magnitude) - 0x3f000000u));
    }
    u += 0xc8000fffu + ((u >> 13) & 1u);  // rebias the exponent by -112 and round to nearest even
    return static_cast<uint16_t>(sign | (u >> 13));
#endif
  }

  KILN_HD static float to_float(uint16_t h) {
#ifdef __CUDA_ARCH__
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
    return f;
#else
    uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
    uint32_t magnitude = h & 0x7fffu;
    if (magnitude >= 0x7c00u) return bits_float(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
    if (magnitude >= 0x400u) return bits_float(sign | ((magnitude << 13) + 0x38000000u));
    float subnormal = static_cast<float>(magnitude) * 0x1p-24f;
    return bits_float(sign | float_bits(subnormal));
#endif
  }
};

static_assert(sizeof(bf16) == 2 && sizeof(fp16) == 2);

// An exact fp32 number as two 16-bit halves: `high` is the nearest bf16 (ties away from zero), so it serves
// as the compute copy of a weight at no cost, and `low` is the signed remainder in units of the last fp32
// bit. A NaN becomes a quiet one: rounding up the bits of 0x7fffffff, the NaN a GPU makes, would give -0.
struct SplitFloat {
  bf16 high;
  int16_t low;
};

KILN_HD inline SplitFloat split_float(float f) {
  uint32_t u = float_bits(f);
  SplitFloat s;
  if ((u & 0x7fffffffu) > 0x7f800000u) {
    s.high.bits = static_cast<uint16_t>((u >> 16) | 0x40u);
    s.low = 0;
    return s;
  }
  s.high.bits = static_cast<uint16_t>((u + 0x8000u) >> 16);
  s.low = static_cast<int16_t>(u & 0xffffu);
  return s;
}

KILN_HD inline float join_float(bf16 high, int16_t low) {
  return bits_float((static_cast<uint32_t>(high.bits) << 16) +
                    static_cast<uint32_t>(static_cast<int32_t>(low)));
}

}  // namespace kiln
