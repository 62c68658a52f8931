#include "base/plain_number.h"

#include <fmt/format.h>

#include <cmath>

namespace kiln {

namespace {

bool has_exponent_for_nothing(const std::string& text, double x) {
  return text.find("e+") != std::string::npos && std::abs(x) < 1e15;
}

std::string all_digits(double x) {
  std::string text = fmt::format("{:#.9g}", x);
  return has_exponent_for_nothing(text, x) ? fmt::format("{:.0f}", x) : text;
}

}  // namespace

std::string plain(double x, int digits) {
  std::string text = fmt::format("{:.{}g}", x, digits);
  return has_exponent_for_nothing(text, x) ? fmt::format("{:.0f}", x) : text;
}

std::string with_error(double x, double error) {
  if (!(error > 0) || !std::isfinite(error)) return all_digits(x);
  constexpr int kMostDecimals = 12;
  const int power = static_cast<int>(std::floor(std::log10(error)));
  // 0.096 is 0.1: rounding may leave the digit one place higher.
  const bool carries = std::lround(error / std::pow(10, power)) == 10;
  const int decimals = -(power + (carries ? 1 : 0));
  if (decimals > kMostDecimals) return fmt::format("{} +- {:.1g}", all_digits(x), error);
  if (decimals > 0) return fmt::format("{:.{}f} +- {:.{}f}", x, decimals, error, decimals);
  const double unit = std::pow(10, -decimals);
  return fmt::format("{:.0f} +- {:.0f}", x, std::round(error / unit) * unit);
}

}  // namespace kiln
