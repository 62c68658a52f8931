// Fits to measured points: the exponent of a time's growth, and the size from which a variant pays.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace kiln {

struct Point {
  double x = 0, y = 0;
};

// y = factor * x^exponent, by least squares of the logarithms.
struct PowerLaw {
  double exponent = 0, factor = 0;
  double error = 0;      // half of the exponent's 95 % interval; 0 of two points, which fit exactly
  double r_squared = 0;  // of the logarithms
  std::size_t points = 0;
};

// Nothing where there are fewer than two different x, or a coordinate is not above 0.
std::optional<PowerLaw> fit_power(std::span<const Point> points);

// The times of two ways at one size.
struct Duel {
  double size = 0, baseline = 0, judged = 0;
};

// From which size on the judged one is the faster, for good: among the sizes measured, every later one is won
// too.
struct Crossover {
  enum class Kind { always, from, never };
  Kind kind = Kind::never;
  double size = 0;         // `from`: between two sizes measured, where the lines cross on logarithmic paper
  double before = 0;       // the largest size at which it did not pay
  double first_won = 0;    // and the next one measured, at which it did
  std::size_t points = 0;  // 0: nothing was measured
};

Crossover crossover(std::vector<Duel> duels);  // in any order

std::string str(const Crossover& c, const std::string& key);  // "pays from rows = 190 (between 128 and 256)"

}  // namespace kiln
