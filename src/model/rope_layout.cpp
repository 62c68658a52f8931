#include "model/rope_layout.h"

#include <algorithm>

#include "base/error.h"
#include "base/nearest_name.h"

namespace kiln {

std::string_view name_of(RopeLayout layout) {
  return layout == RopeLayout::halves ? "halves" : "interleaved";
}

RopeLayout parse_rope_layout(std::string_view text, std::string_view what) {
  static constexpr std::string_view kNames[] = {"halves", "interleaved"};
  if (text == kNames[0]) return RopeLayout::halves;
  if (text == kNames[1]) return RopeLayout::interleaved;
  const std::string near = nearest_name(text, kNames);
  throw Error(cat(what, " is '", text, "'; expected halves or interleaved"),
              near.empty() ? "" : cat("did you mean '", near, "'?"), ErrorKind::usage);
}

bool is_turned(const WeightSpec& weight) {
  const std::string_view name = weight.name;
  return name.ends_with(".self_attn.q_proj.weight") || name.ends_with(".self_attn.k_proj.weight");
}

void RelaidWeights::read(const WeightSpec& weight, int64_t first_row, std::span<float> out) {
  source_.read(weight, first_row, out);
  if (from_ == to_ || !is_turned(weight)) return;
  const int64_t D = head_dim_, columns = weight.columns();
  const auto head_size = static_cast<std::size_t>(D * columns);
  if (first_row % D != 0 || out.size() % head_size != 0)
    throw Error(cat("weight ", weight.name, ": rows must be read by whole heads of ", D));
  head_.resize(head_size);
  for (std::size_t begin = 0; begin < out.size(); begin += head_size) {
    const std::span<float> head = out.subspan(begin, head_size);
    std::copy(head.begin(), head.end(), head_.begin());
    for (int64_t i = 0; i < D / 2; ++i) {
      for (int64_t half = 0; half < 2; ++half) {
        const int64_t apart = half * (D / 2) + i, together = 2 * i + half;
        const int64_t row = to_ == RopeLayout::halves ? apart : together;
        const int64_t source_row = to_ == RopeLayout::halves ? together : apart;
        std::copy_n(head_.begin() + source_row * columns, columns, head.begin() + row * columns);
      }
    }
  }
}

}  // namespace kiln
