#include "base/units.h"

#include <charconv>
#include <cstdio>

#include "base/error.h"

namespace kiln {

std::string human(Bytes b) {
  static const char* const kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double v = static_cast<double>(b.value);
  int unit = 0;
  while (v >= 1024 && unit < 5) {
    v /= 1024;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.2f %s", v, kUnits[unit]);
  return text;
}

Bytes parse_bytes(std::string_view text, std::string_view what) {
  struct Unit {
    std::string_view name;
    std::size_t bytes;
  };
  static constexpr Unit kUnits[] = {{"", 1},
                                    {"B", 1},
                                    {"KB", 1'000},
                                    {"MB", 1'000'000},
                                    {"GB", 1'000'000'000},
                                    {"TB", 1'000'000'000'000},
                                    {"KiB", std::size_t{1} << 10},
                                    {"MiB", std::size_t{1} << 20},
                                    {"GiB", std::size_t{1} << 30},
                                    {"TiB", std::size_t{1} << 40}};
  std::size_t value = 0;
  const auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  std::string_view unit = text.substr(static_cast<std::size_t>(at - text.data()));
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  for (const Unit& u : kUnits) {
    if (error != std::errc{} || u.name != unit) continue;
    if (__builtin_mul_overflow(value, u.bytes, &value)) break;
    return {value};
  }
  throw Error(cat(what, " is '", text, "'; expected a size like 5GB, 512MiB or 1000000"), {},
              ErrorKind::usage);
}

}  // namespace kiln
