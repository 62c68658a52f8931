#include "base/choice.h"

#include <fmt/format.h>

#include <charconv>

#include "base/error.h"
#include "base/options.h"
#include "base/parse_number.h"

namespace kiln {

std::vector<std::string> split_at_commas(std::string_view text) { return split_list(text); }

std::size_t index_of(std::string_view option, std::string_view seen,
                     const std::vector<std::string_view>& names) {
  return which_name(std::string(option), seen, names);
}

namespace {
constexpr DType kDTypes[] = {DType::f32, DType::bf16, DType::f16, DType::f64};
}

std::vector<std::string_view> dtype_words() {
  std::vector<std::string_view> names;
  for (const DType t : kDTypes) names.push_back(name_of(t));
  return names;
}

std::vector<DType> parse_dtypes(std::string_view text) {
  std::vector<DType> dtypes;
  for (const std::string& item : split_at_commas(text)) {
    const DType dtype = kDTypes[index_of("--dtype", item, dtype_words())];
    if (std::find(dtypes.begin(), dtypes.end(), dtype) == dtypes.end()) dtypes.push_back(dtype);
  }
  return dtypes;
}

TextForm<std::vector<DType>> dtypes_form() {
  return {[](const std::string& text) { return parse_dtypes(text); },
          [](const std::vector<DType>& dtypes) {
            std::vector<std::string> names;
            for (const DType t : dtypes) names.emplace_back(name_of(t));
            return joined(names);
          }};
}

std::vector<int64_t> read_doubling(std::string_view option, const std::string& text, int64_t most) {
  std::vector<int64_t> sizes;
  for (const std::string& word : split_at_commas(text)) {
    const auto dots = word.find("..");
    const bool range = dots != std::string::npos;
    const auto from = parse_number<int64_t>(option, word.substr(0, dots), 1, most);
    const auto to = range ? parse_number<int64_t>(option, word.substr(dots + 2), from, most) : from;
    for (int64_t n = from; n <= to; n *= 2) {
      if (std::find(sizes.begin(), sizes.end(), n) == sizes.end()) sizes.push_back(n);
    }
  }
  return sizes;
}

TextForm<std::vector<int64_t>> doubling_form(const char* option, int64_t most) {
  return {[option, most](const std::string& text) { return read_doubling(option, text, most); },
          [](const std::vector<int64_t>& sizes) {
            bool doubles = sizes.size() > 2;
            for (std::size_t i = 1; i < sizes.size(); ++i) doubles = doubles && sizes[i] == 2 * sizes[i - 1];
            if (doubles) return fmt::format("{}..{}", sizes.front(), sizes.back());
            return fmt::format("{}", fmt::join(sizes, ","));
          }};
}

int parse_threads(const std::string& text) {
  constexpr int kMost = 1024;
  int n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc{} || end != text.data() + text.size() || n < 0 || n > kMost) {
    throw Error(
        fmt::format("--threads is '{}'; expected a whole number from 1 to {}, or 0 for all", text, kMost), {},
        ErrorKind::usage);
  }
  return n;
}

}  // namespace kiln
