#include "model/recompute.h"

#include <array>
#include <charconv>

#include "base/error.h"
#include "base/nearest_name.h"

namespace kiln {
namespace {

constexpr int64_t kMostBlocks = int64_t{1} << 20;

}  // namespace

std::string name_of(const Recompute& r) {
  switch (r.kind) {
    case Recompute::Kind::none:
      return "none";
    case Recompute::Kind::every:
      return r.k == 1 ? "block" : cat("every:", r.k);
    case Recompute::Kind::nested:
      return "nested";
  }
  return {};
}

Recompute parse_recompute(std::string_view option, std::string_view text) {
  constexpr std::string_view kEvery = "every:";
  if (text == "none") return Recompute::none;
  if (text == "block") return Recompute::block;
  if (text == "nested") return Recompute::nested;
  if (text.starts_with(kEvery)) {
    const std::string_view number = text.substr(kEvery.size());
    int64_t k = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), k);
    if (error != std::errc() || end != number.data() + number.size() || k < 1 || k > kMostBlocks) {
      throw Error(cat(option, " is '", text, "'; expected every:k with k from 1 to ", kMostBlocks),
                  "every:2 keeps the input of every second block", ErrorKind::usage);
    }
    return Recompute::every(k);
  }
  constexpr std::array<std::string_view, 4> kNames = {"none", "block", "every:k", "nested"};
  const std::string near = nearest_name(text, kNames);
  throw Error(cat(option, " is '", text, "'; expected one of: none, block, every:k, nested"),
              near.empty() ? "" : cat("did you mean '", near, "'?"), ErrorKind::usage);
}

}  // namespace kiln
