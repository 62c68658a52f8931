#include "dist/strategy/grad_tree.h"

#include <bit>

#include "autograd/accumulate.h"
#include "base/error.h"

namespace kiln {
namespace {

bool is_power_of_two(int n) { return n > 0 && std::has_single_bit(static_cast<unsigned>(n)); }

}  // namespace

GradTree::GradTree(RankContext& ctx, const Tensor& grads, int chunks)
    : ctx_(ctx), grads_(grads), chunks_(chunks) {
  if (!is_power_of_two(chunks))
    throw Error(cat("a tree of sums over ", chunks, " chunks: their number must be a power of two"));
  levels_.resize(static_cast<std::size_t>(std::countr_zero(static_cast<unsigned>(chunks))));
  for (Tensor& level : levels_) level = ctx.empty(grads.shape(), grads.dtype(), Tag::grad);
}

void GradTree::fold(const Tensor& range, int chunk) {
  const int64_t at = (range.raw() - grads_.raw()) / static_cast<int64_t>(size_of(grads_.dtype()));
  auto kept = [&](std::size_t level) { return levels_[level].narrow(0, at, range.numel()); };
  std::size_t level = 0;
  for (int c = chunk; (c & 1) != 0; c >>= 1) accumulate_grad(ctx_, {range, true}, kept(level++));
  if (chunk + 1 < chunks_) accumulate_grad(ctx_, {kept(level), false}, range);
}

void check_chunks(int chunks, int ranks) {
  if (chunks % ranks != 0 || !is_power_of_two(chunks / ranks) || !is_power_of_two(ranks))
    throw Error(cat("--canonical with ", chunks, " chunks on ", ranks,
                    " ranks: every rank must have a power of two of them, and the ranks be one, or the sums "
                    "could not be in one order for any number of ranks"),
                is_power_of_two(ranks)
                    ? "--chunks says how many, a power of two that the sequences of a step divide into"
                    : "take 1, 2, 4, ... ranks",
                ErrorKind::usage);
}

}  // namespace kiln
