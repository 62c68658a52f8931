// The inputs of a test's ranks to a collective, and a bitwise check of the result.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstddef>
#include <type_traits>
#include <vector>

#include "autograd/rank_context.h"
#include "base/rng.h"

namespace kiln {

// What `rank` brings: normals of all sizes, so that the order of a sum shows in its bits, and negative zeros.
template <class T>
std::vector<T> values_of(int rank, int64_t count) {
  const PhiloxKey key = philox_key(11, cat("rank ", rank));
  std::vector<T> v;
  for (int64_t i = 0; i < count; ++i) {
    const auto index = static_cast<uint64_t>(i);
    const float scale = static_cast<float>(1 << (philox(key, index, 7).z % 12));
    float x = philox_normal(key, index) * scale;
    if (i % 17 == 2) x = -0.0f;
    if constexpr (std::is_same_v<T, double>) {
      v.push_back(x * 1.0000000001);  // uses the bits a float does not have
    } else {
      v.push_back(T(x));
    }
  }
  return v;
}

// Of some numbers, in the order the collectives add ranks up: pairs, then pairs of pairs.
template <class A>
A sum_pairwise(const std::vector<A>& v) {
  if (v.size() == 1) return v[0];
  const auto half = static_cast<std::ptrdiff_t>(std::bit_floor(v.size() - 1));
  return sum_pairwise(std::vector<A>(v.begin(), v.begin() + half)) +
         sum_pairwise(std::vector<A>(v.begin() + half, v.end()));
}

template <class T>
std::vector<T> sum_of_ranks(int world, int64_t count) {
  std::vector<std::vector<T>> ranks;
  for (int r = 0; r < world; ++r) ranks.push_back(values_of<T>(r, count));
  std::vector<T> sums;
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    std::vector<Accum<T>> brought;
    for (const std::vector<T>& v : ranks) brought.push_back(static_cast<Accum<T>>(v[i]));
    sums.push_back(static_cast<T>(sum_pairwise(brought)));
  }
  return sums;
}

template <class T>
Tensor upload(RankContext& ctx, const std::vector<T>& values) {
  Tensor t = ctx.empty({static_cast<int64_t>(values.size())}, dtype_of<T>());
  ctx.upload(t, values.data());
  return t;
}

template <class T>
void expect_bits(RankContext& ctx, const Tensor& t, const std::vector<T>& wanted, const char* what) {
  std::vector<T> got(static_cast<std::size_t>(t.numel()));
  ctx.download(got.data(), t);
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    // Bits and not values: -0 is not 0 here.
    ASSERT_EQ((std::bit_cast<std::array<std::byte, sizeof(T)>>(got[i])),
              (std::bit_cast<std::array<std::byte, sizeof(T)>>(wanted[i])))
        << what << " of " << got.size() << ' ' << name_of(dtype_of<T>()) << " on rank " << ctx.rank()
        << " of " << ctx.world() << ", element " << i;
  }
}

template <class T>
std::vector<T> part(const std::vector<T>& v, int rank, int64_t count) {
  return {v.begin() + rank * count, v.begin() + (rank + 1) * count};
}

}  // namespace kiln
