// A sum kept in one number of a dtype, rounded after every addition: plainly, by Kahan, or at random.
#pragma once

#include <cmath>
#include <string_view>

#include "base/rng.h"
#include "studies/precision/float_format.h"

namespace kiln {

enum class SumMethod {
  plain,       // acc = round(acc + x)
  converted,   // x becomes the accumulator's dtype first, then plain
  kahan,       // what a rounding lost is kept in a second number of the same dtype and given back
  stochastic,  // rounded up with the probability that makes the mean right
};
std::string_view name_of(SumMethod m);

// Up or down by the draw, of 2^32, so that the mean of many is `exact`.
template <class A>
A round_stochastic(double exact, uint32_t draw) {
  if (!std::isfinite(exact)) return A(static_cast<float>(exact));
  const double spacing = format_of(dtype_of<A>()).spacing(exact);
  const double below = std::floor(exact / spacing) * spacing;
  return A(static_cast<float>(draw * 0x1p-32 < (exact - below) / spacing ? below + spacing : below));
}

template <class A>
class PlainSum {
 public:
  void add(float x) { sum_ = A(static_cast<float>(sum_) + x); }
  double value() const { return static_cast<double>(static_cast<float>(sum_)); }

 private:
  A sum_{0.0f};
};

template <class A>
class KahanSum {
 public:
  void add(float x) {
    const A y(x - static_cast<float>(lost_));
    const A next(static_cast<float>(sum_) + static_cast<float>(y));
    const A moved(static_cast<float>(next) - static_cast<float>(sum_));
    lost_ = A(static_cast<float>(moved) - static_cast<float>(y));
    sum_ = next;
  }
  double value() const { return static_cast<double>(static_cast<float>(sum_)); }
  double lost() const { return static_cast<double>(static_cast<float>(lost_)); }  // the sum has too much

 private:
  A sum_{0.0f}, lost_{0.0f};
};

// Each sum draws from its own place in the key's stream.
template <class A>
class StochasticSum {
 public:
  explicit StochasticSum(PhiloxKey key, uint64_t at = 0) : key_(key), at_(at) {}
  void add(float x) {
    const double exact = static_cast<double>(static_cast<float>(sum_)) + static_cast<double>(x);
    sum_ = round_stochastic<A>(exact, philox(key_, at_++, 0).x);
  }
  double value() const { return static_cast<double>(static_cast<float>(sum_)); }

 private:
  PhiloxKey key_;
  uint64_t at_;
  A sum_{0.0f};
};

}  // namespace kiln
