#include "train/canonical_scalars.h"

#include <cstddef>

namespace kiln {

CanonicalScalars::CanonicalScalars(RankContext& ctx, const ParamStore& params, Strategy& strategy)
    : ctx_(ctx), params_(params), strategy_(strategy) {
  if (params.layout().pieces != kPieces || kPieces % params.data_world() != 0)
    throw Error(cat("a canonical step needs parameters in ", kPieces, " pieces, which ", params.data_world(),
                    " ranks split evenly"));
  table_ = ctx.empty({static_cast<int64_t>(params.params().size()) * kPieces}, DType::f64, Tag::optim);
}

void CanonicalScalars::sum(const Tensor& scalars) {
  fill(scalars);
  strategy_.sum_over_ranks(table_, "squares of pieces");
  strategy_.sum_over_ranks(loss_and_squares(scalars).narrow(0, 0, 1), "loss");
  std::vector<double> pieces(static_cast<std::size_t>(table_.numel()));
  ctx_.download(pieces.data(), table_);
  double squares = 0;
  for (const double piece : pieces) squares += piece;
  ctx_.upload(loss_and_squares(scalars).narrow(0, 1, 1), &squares);
}

void CanonicalScalars::fill(const Tensor& scalars) {
  ctx_.backend().zero(table_.raw(), table_.bytes().value, ctx_.compute());
  const int rank = params_.data_rank(), world = params_.data_world();
  const Tensor squares = loss_and_squares(scalars).narrow(0, 1, 1);
  int64_t row = -kPieces;
  for (const Param& p : params_.params()) {
    row += kPieces;
    if (!p.trainable || p.padded < kPieces) continue;
    const Tensor mine = params_.piece(params_.grads(), p, rank, world);
    const bool whole = mine.numel() == p.padded;
    if (whole && rank > 0) continue;  // the first rank counts what all have
    const int64_t each = p.padded / kPieces, here = mine.numel() / each, first = whole ? 0 : rank * here;
    for (int64_t i = 0; i < here; ++i) {
      square_sum(ctx_, mine.narrow(0, i * each, each), scalars);
      ctx_.backend().copy_within(table_.narrow(0, row + first + i, 1).raw(), squares.raw(), sizeof(double),
                                 ctx_.compute());
    }
  }
}

}  // namespace kiln
