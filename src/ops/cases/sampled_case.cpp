#include "ops/cases/sampled_case.h"

#include <algorithm>
#include <set>

#include "autograd/tape.h"
#include "base/rng.h"

namespace kiln {

std::vector<int64_t> Sampling::pick(int64_t total, double work_each, uint64_t stream) const {
  constexpr int64_t kLeast = 3;
  const double within = work / std::max(1.0, work_each);
  std::vector<int64_t> rows;
  if (static_cast<double>(total) <= std::max<double>(kLeast, within)) {
    for (int64_t r = 0; r < total; ++r) rows.push_back(r);
    return rows;
  }
  const int64_t count = std::clamp<int64_t>(static_cast<int64_t>(within), kLeast, most);
  const PhiloxKey key = philox_key(seed, "sampled rows");
  std::set<int64_t> taken = {0, total - 1};
  for (uint64_t i = 0; static_cast<int64_t>(taken.size()) < std::min(count, total); ++i)
    taken.insert(static_cast<int64_t>(philox(key, i, stream).x % static_cast<uint64_t>(total)));
  return {taken.begin(), taken.end()};
}

namespace {

// Rows of an input, counting ids one by one; a parameter has none of the problem's.
bool has_rows(const CaseInput& in, int64_t rows) {
  using K = CaseInput::Kind;
  if (in.kind == K::param) return false;
  return (in.kind == K::ids || in.shape.rank() == 1 ? in.shape.numel() : in.shape.rows()) == rows;
}

}  // namespace

SampledCase sample_rows(const std::function<OpCase(int64_t rows)>& make, int64_t rows, double work_each,
                        const Sampling& sampling) {
  SampledCase c{make(rows), {}};
  const std::vector<int64_t> taken = sampling.pick(rows, work_each);
  SampledPart part{make(static_cast<int64_t>(taken.size())), {}, {}};
  for (std::size_t i = 0; i < c.whole.inputs.size(); ++i)
    part.inputs.push_back(
        {static_cast<int>(i), has_rows(c.whole.inputs[i], rows) ? Slice{taken} : Slice::whole()});
  part.outputs = {Slice{taken}};  // of each output
  c.taken = static_cast<int64_t>(taken.size());
  c.total = rows;
  c.parts.push_back(std::move(part));
  return c;
}

SampledCase pack_inputs(SampledCase c, int first, int count) {
  if (count != 2 && count != 3) throw Error(cat("cannot pack ", count, " inputs of a case, only 2 or 3"));
  const auto at = static_cast<std::size_t>(first), n = static_cast<std::size_t>(count);
  std::vector<int64_t> widths, begins;
  int64_t width = 0;
  for (std::size_t i = at; i < at + n; ++i) {
    begins.push_back(width);
    widths.push_back(c.whole.inputs[i].shape.last());
    width += widths.back();
  }
  CaseInput packed = c.whole.inputs[at];
  packed.name = "packed";
  packed.shape = packed.shape.with_last(width);
  auto& inputs = c.whole.inputs;
  inputs.erase(inputs.begin() + first, inputs.begin() + first + count);
  inputs.insert(inputs.begin() + first, packed);
  c.whole.call = [call = c.whole.call, w = widths, at, n](RankContext& ctx,
                                                          std::span<const CaseArgument> in) {
    std::vector<CaseArgument> all(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(at));
    const Tensor& whole = in[at].tensor;
    const auto parts = n == 2 ? split(ctx, whole, {w[0], w[1]}) : split(ctx, whole, {w[0], w[1], w[2]});
    for (std::size_t i = 0; i < n; ++i) all.push_back({parts[static_cast<int>(i)], nullptr});
    all.insert(all.end(), in.begin() + static_cast<std::ptrdiff_t>(at) + 1, in.end());
    return call(ctx, all);
  };
  for (SampledPart& part : c.parts) {
    for (SampledPart::Input& input : part.inputs) {
      const int i = input.of - first;
      if (i >= count) input.of -= count - 1;
      if (i < 0 || i >= count) continue;
      input.of = first;
      input.slice.col += begins[static_cast<std::size_t>(i)];
      if (input.slice.cols == 0) input.slice.cols = widths[static_cast<std::size_t>(i)];
    }
  }
  return c;
}

}  // namespace kiln
