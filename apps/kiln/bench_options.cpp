#include "kiln/bench_options.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdio>

#include "base/error.h"
#include "base/nearest_name.h"
#include "base/one_line.h"
#include "base/parse_number.h"
#include "rows/result_log.h"

namespace kiln::cli {

std::vector<std::string> split_at_commas(std::string_view text) {
  std::vector<std::string> items;
  for (;;) {
    const auto comma = text.find(',');
    items.emplace_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return items;
    text = text.substr(comma + 1);
  }
}

std::size_t index_of(std::string_view option, std::string_view seen,
                     const std::vector<std::string_view>& names) {
  const auto found = std::find(names.begin(), names.end(), seen);
  if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
  const std::string near = nearest_name(seen, names);
  throw Error(fmt::format("{} is '{}'", option, seen),
              near.empty() ? fmt::format("it takes {}", fmt::join(names, ", "))
                           : fmt::format("did you mean '{}'?", near),
              ErrorKind::usage);
}

std::vector<DType> parse_dtypes(std::string_view text) {
  const std::vector<DType> known = {DType::f32, DType::bf16, DType::f16, DType::f64};
  std::vector<std::string_view> names;
  names.reserve(known.size());
  for (DType t : known) names.push_back(name_of(t));
  std::vector<DType> dtypes;
  for (const std::string& item : split_at_commas(text)) {
    const DType dtype = known[index_of("--dtype", item, names)];
    if (std::find(dtypes.begin(), dtypes.end(), dtype) == dtypes.end()) dtypes.push_back(dtype);
  }
  return dtypes;
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

std::vector<ModelSize> read_sizes(const std::string& names, const std::string& vocab) {
  const auto lower = [](std::string word) {
    std::transform(word.begin(), word.end(), word.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return word;
  };
  std::vector<ModelSize> sizes;
  for (const std::string& name : read_list<std::string>(names, lower)) {
    ModelSize size = find_model_size(name);
    read_number<int64_t>("--vocab", vocab, 1, 1 << 24, size.vocab);
    (void)config_of(size);  // throws for one that cannot be built
    sizes.push_back(size);
  }
  return sizes;
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

PageFormat read_format(const std::string& format, bool json) {
  if (json && !format.empty())
    throw Error("--format and --json are both given; expected one of them", {}, ErrorKind::usage);
  if (json) return PageFormat::json;
  if (format.empty()) return PageFormat::text;
  constexpr std::array kFormats = {PageFormat::text, PageFormat::markdown, PageFormat::csv, PageFormat::latex,
                                   PageFormat::json};
  return kFormats[index_of("--format", format, {"table", "md", "csv", "latex", "json"})];
}

void prepare_results(const std::string& out) {
  append_results(out, {});
  if (const std::string repaired = repair_results(out); !repaired.empty())
    fmt::print(stderr, "{}\n", repaired);
}

BenchProgress::BenchProgress() : terminal_(::isatty(STDERR_FILENO) == 1) {}

BenchProgress::~BenchProgress() { (*this)(""); }

void BenchProgress::operator()(const std::string& text) const {
  if (!terminal_) return;
  winsize window{};
  const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0;
  const int room = known ? window.ws_col - 1 : 79;  // a line that wraps would not be written over
  std::fprintf(stderr, "\r\x1b[K%.*s", room, one_line(text).c_str());
  std::fflush(stderr);
}

}  // namespace kiln::cli
