#include "base/error.h"
#include "dist/tensor/vocab_rows.h"

namespace kiln {
namespace {

[[noreturn]] void left_out() {
  throw Error("this kiln was built without CUDA", "run `make cuda`", ErrorKind::unavailable);
}

}  // namespace

void local_ids_cuda(RankContext&, const Tensor&, const VocabPart&, const Tensor&) { left_out(); }
void row_parts_cuda(RankContext&, const Tensor&, const Tensor&, const Tensor&) { left_out(); }
void join_row_parts_cuda(RankContext&, const Tensor&, const Tensor&, const Tensor&, const Tensor&) {
  left_out();
}
void mean_of_rows_cuda(RankContext&, const Tensor&, const Tensor&, const Tensor&, const Tensor&) {
  left_out();
}

}  // namespace kiln
