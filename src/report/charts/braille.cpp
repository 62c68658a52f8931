#include "report/charts/braille.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "base/plain_number.h"

namespace kiln {
namespace {

// The mean of each column's share of the points; NaN where none of them is finite.
std::vector<double> columns_of(std::span<const double> values, int width) {
  const auto n = static_cast<int64_t>(values.size());
  const int64_t count = std::min<int64_t>(width, n);
  std::vector<double> columns;
  for (int64_t c = 0; c < count; ++c) {
    double sum = 0;
    int64_t finite = 0;
    for (int64_t i = c * n / count; i < (c + 1) * n / count; ++i) {
      const double v = values[static_cast<std::size_t>(i)];
      if (!std::isfinite(v)) continue;
      sum += v;
      ++finite;
    }
    columns.push_back(finite == 0 ? NAN : sum / static_cast<double>(finite));
  }
  return columns;
}

struct Range {
  double low = INFINITY, high = -INFINITY;
  bool empty() const { return low > high; }
  double span() const { return high > low ? high - low : 1; }
};

Range range_of(const std::vector<double>& values) {
  Range r;
  for (const double v : values) {
    if (std::isnan(v)) continue;
    r.low = std::min(r.low, v);
    r.high = std::max(r.high, v);
  }
  return r;
}

// U+2800 and on: a bit for each of its dots.
void append_braille(std::string& text, unsigned dots) {
  const unsigned code = 0x2800 + dots;
  text += static_cast<char>(0xe0 | code >> 12);
  text += static_cast<char>(0x80 | (code >> 6 & 0x3f));
  text += static_cast<char>(0x80 | (code & 0x3f));
}

}  // namespace

std::string draw_braille_curve(std::span<const double> values, int width, int height) {
  if (width < 1 || height < 1) return {};
  const std::vector<double> dots = columns_of(values, 2 * width);
  const Range range = range_of(dots);
  if (range.empty()) return {};
  const int tall = 4 * height;
  const auto row_of = [&](double v) {
    return static_cast<int>(std::lround((range.high - v) / range.span() * (tall - 1)));
  };
  constexpr std::array<std::array<unsigned, 4>, 2> kBits = {
      {{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}}};
  std::vector<unsigned> cells(static_cast<std::size_t>(width) * static_cast<std::size_t>(height), 0);
  int last = -1;
  for (std::size_t x = 0; x < dots.size(); ++x) {
    if (std::isnan(dots[x])) {
      last = -1;
      continue;
    }
    const int row = row_of(dots[x]);
    // From where the last one ended: a steep curve stays one line.
    const int from = last < 0 ? row : last + (row > last ? 1 : row < last ? -1 : 0);
    for (int y = std::min(from, row); y <= std::max(from, row); ++y)
      cells[static_cast<std::size_t>(y / 4) * static_cast<std::size_t>(width) + x / 2] |=
          kBits[x % 2][static_cast<std::size_t>(y % 4)];
    last = row;
  }
  std::string chart;
  for (int row = 0; row < height; ++row) {
    const std::string scale = row == 0 ? plain(range.high, 4) : row + 1 == height ? plain(range.low, 4) : "";
    chart += fmt::format("{:>8} |", scale);
    for (int x = 0; x < width; ++x)
      append_braille(chart, cells[static_cast<std::size_t>(row) * static_cast<std::size_t>(width) +
                                  static_cast<std::size_t>(x)]);
    chart += '\n';
  }
  return chart;
}

std::string sparkline(std::span<const double> values, int width, bool unicode) {
  constexpr std::array<const char*, 8> kBlocks = {"\u2581", "\u2582", "\u2583", "\u2584",
                                                  "\u2585", "\u2586", "\u2587", "\u2588"};
  constexpr std::array<const char*, 8> kAscii = {"_", ".", "-", "~", "=", "+", "*", "#"};
  const std::vector<double> columns = columns_of(values, width);
  const Range range = range_of(columns);
  std::string line;
  for (const double v : columns) {
    if (std::isnan(v)) {
      line += ' ';
      continue;
    }
    // A curve that is flat stays in the middle.
    const double share = range.high > range.low ? (v - range.low) / range.span() : 0.5;
    const auto level = static_cast<std::size_t>(std::clamp(std::lround(7 * share), 0L, 7L));
    line += (unicode ? kBlocks : kAscii)[level];
  }
  return line;
}

}  // namespace kiln
