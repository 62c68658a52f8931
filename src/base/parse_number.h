// Numbers on the command line, read by ourselves: CLI11's own conversions do not say what was expected.
#pragma once

#include <fmt/format.h>

#include <charconv>
#include <string>
#include <string_view>

#include "base/error.h"

namespace kiln {

template <class T>
T parse_number(std::string_view option, const std::string& text, T least, T most) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !(value >= least && value <= most)) {
    throw Error(fmt::format("{} is '{}'; expected a number from {} to {}", option, text, least, most), {},
                ErrorKind::usage);
  }
  return value;
}

// Leaves `value` as it is where the option was not given.
template <class T>
void read_number(std::string_view option, const std::string& text, T least, T most, T& value) {
  if (!text.empty()) value = parse_number<T>(option, text, least, most);
}

}  // namespace kiln
