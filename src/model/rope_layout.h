// The two orders in which the rows of q_proj and k_proj are found on disk. Rotary embedding turns pairs of
// values of a head; `halves` (kiln, Hugging Face) pairs value i with i + D/2, `interleaved` (Meta's files,
// torchtitan) pairs 2 i with 2 i + 1. Rows moved from one order to the other give the same model.
#pragma once

#include <span>
#include <string_view>

#include "model/weight_source.h"

namespace kiln {

enum class RopeLayout { halves, interleaved };

std::string_view name_of(RopeLayout layout);
// Throws Error(usage); `what` opens it ("--rope").
RopeLayout parse_rope_layout(std::string_view text, std::string_view what);

// Whether a weight's rows are turned: self_attn.q_proj and k_proj.
bool is_turned(const WeightSpec& weight);

// Reads another source, whose q and k are in `from`, as if they stood in `to`.
class RelaidWeights final : public WeightSource {
 public:
  RelaidWeights(WeightSource& source, int64_t head_dim, RopeLayout from, RopeLayout to)
      : source_(source), head_dim_(head_dim), from_(from), to_(to) {}
  // Of turned weights whole heads are read: first_row and the number of rows are multiples of head_dim.
  void read(const WeightSpec& weight, int64_t first_row, std::span<float> out) override;

 private:
  WeightSource& source_;
  int64_t head_dim_;
  RopeLayout from_, to_;
  std::vector<float> head_;
};

}  // namespace kiln
