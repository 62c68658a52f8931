// Counter-based random numbers: value = f(seed, name, index), with no state to carry, save or share.
// Philox4x32-10 gives the bits. Normals come from Box-Muller built only of correctly rounded operations
// (fma, add, divide, sqrt), so a CPU and a GPU draw the same bits and a run can start on either.
#pragma once

#include <cmath>
#include <cstdint>
#include <string_view>

#include "base/exact.h"
#include "base/half.h"
#include "base/hd.h"

namespace kiln {

struct Philox4 {
  uint32_t x, y, z, w;
};

struct PhiloxKey {
  uint32_t lo, hi;
};

KILN_HD inline Philox4 philox(PhiloxKey key, Philox4 counter) {
  Philox4 c = counter;
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = static_cast<uint64_t>(0xD2511F53u) * c.x;
    const uint64_t p1 = static_cast<uint64_t>(0xCD9E8D57u) * c.z;
    c = {static_cast<uint32_t>(p1 >> 32) ^ c.y ^ key.lo, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c.w ^ key.hi, static_cast<uint32_t>(p0)};
    key.lo += 0x9E3779B9u;
    key.hi += 0xBB67AE85u;
  }
  return c;
}

KILN_HD inline Philox4 philox(PhiloxKey key, uint64_t index, uint32_t attempt) {
  return philox(key, Philox4{static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), attempt, 0});
}

// The key of one named stream: FNV-1a over the name, mixed with the seed by splitmix64's finaliser.
inline PhiloxKey philox_key(uint64_t seed, std::string_view name) {
  uint64_t h = 0xcbf29ce484222325u;
  for (char ch : name) h = (h ^ static_cast<unsigned char>(ch)) * 0x100000001b3u;
  h ^= seed + 0x9e3779b97f4a7c15u + (h << 6) + (h >> 2);
  h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9u;
  h = (h ^ (h >> 27)) * 0x94d049bb133111ebu;
  h ^= h >> 31;
  return {static_cast<uint32_t>(h), static_cast<uint32_t>(h >> 32)};
}

namespace exact {  // beyond base/exact.h

// ln(x) for normal x > 0. With x = 2^e m, m in [2/3, 4/3): ln m = 2 atanh((m-1)/(m+1)), its series cut where
// the next term falls below 2^-28 of the sum.
KILN_HD inline float log(float x) {
  const uint32_t shifted = float_bits(x) - 0x3f2aaaabu;  // bits of 2/3: puts m into [2/3, 4/3)
  const int e = static_cast<int32_t>(shifted) >> 23;
  const float m = bits_float(float_bits(x) - (static_cast<uint32_t>(e) << 23));
  const float s = div(add(m, -1.0f), add(m, 1.0f));
  const float s2 = mul(s, s);
  float series = fma(s2, 1.0f / 11, 1.0f / 9);
  series = fma(s2, series, 1.0f / 7);
  series = fma(s2, series, 1.0f / 5);
  series = fma(s2, series, 1.0f / 3);
  series = fma(s2, series, 1.0f);
  return fma(static_cast<float>(e), 0.693147180559945f, mul(add(s, s), series));
}

// sin and cos by their Taylor series on [-pi/4, pi/4].
KILN_HD inline float sin_small(float a) {
  const float a2 = mul(a, a);
  float series = fma(a2, 1.0f / 362880, -1.0f / 5040);
  series = fma(a2, series, 1.0f / 120);
  series = fma(a2, series, -1.0f / 6);
  series = fma(a2, series, 1.0f);
  return mul(a, series);
}
KILN_HD inline float cos_small(float a) {
  const float a2 = mul(a, a);
  float series = fma(a2, -1.0f / 3628800, 1.0f / 40320);
  series = fma(a2, series, -1.0f / 720);
  series = fma(a2, series, 1.0f / 24);
  series = fma(a2, series, -0.5f);
  return fma(a2, series, 1.0f);
}
}  // namespace exact

// A standard normal; |z| <= 5.9 because the radius comes from 23 random bits.
KILN_HD inline float philox_normal(PhiloxKey key, uint64_t index, uint32_t attempt = 0) {
  const Philox4 r = philox(key, index, attempt);
  const float u = (static_cast<float>(r.x >> 9) + 0.5f) * 0x1p-23f;                        // exact, in (0, 1)
  const float quarter = (static_cast<float>((r.y & 0x3fffffffu) >> 7) + 0.5f) * 0x1p-23f;  // exact, in (0, 1)
  const float radius = exact::sqrt(exact::mul(-2.0f, exact::log(u)));
  const float angle = exact::mul(exact::add(quarter, -0.5f), 1.57079632679490f);  // within its quadrant
  switch (r.y >> 30) {
    case 0:
      return exact::mul(radius, exact::cos_small(angle));
    case 1:
      return -exact::mul(radius, exact::sin_small(angle));
    case 2:
      return -exact::mul(radius, exact::cos_small(angle));
    default:
      return exact::mul(radius, exact::sin_small(angle));
  }
}

// A normal redrawn until it is within `bound` sigma; the redraw is keyed too, so it needs no state either.
// A bound so narrow that 64 draws miss it (far below 1) is kept by clamping.
KILN_HD inline float philox_truncated_normal(PhiloxKey key, uint64_t index, float bound) {
  float z = philox_normal(key, index, 0);
  for (uint32_t attempt = 1; (z > bound || z < -bound) && attempt < 64; ++attempt) {
    z = philox_normal(key, index, attempt);
  }
  return z > bound ? bound : z < -bound ? -bound : z;
}

}  // namespace kiln
