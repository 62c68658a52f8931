// One list of cases per op, shared by the definition tests, the gradient checks, the device comparisons and
// the benchmarks. A case says what goes in and how the op is called; run_case.h does the rest.
#pragma once

#include <functional>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "autograd/param.h"
#include "autograd/rank_context.h"
#include "base/small_vector.h"

namespace kiln {

struct CaseInput {
  enum class Kind {
    activation,
    param,
    ids,
    statistic,  // one value a row, say: an activation in the statistics dtype
    state,      // an optimizer's: in the statistics dtype, without a gradient
    low_half,   // of split weights: int16 zeros for bf16, no tensor at all for other dtypes
  };
  const char* name;
  Kind kind;
  Shape shape;
  float scale = 1;           // values are normal with this standard deviation
  int64_t row_padding = 0;   // elements between rows: a non-contiguous view
  int64_t ids_below = 0;     // ids: uniform in [0, ids_below)
  int64_t ignore_every = 0;  // ids: every n-th is the ignored target
  bool absolute = false;     // values are not negative
};

// What a case's call sees of input i: a tensor, or the handle of a parameter.
struct CaseArgument {
  Tensor tensor;
  Param* param = nullptr;
};

// What a case's call gives: a tensor, or several, whose elements then follow one another.
struct CaseOutputs {
  SmallVector<Tensor, 4> tensors;
  Tensor low;  // the low halves of the first, where that is the high half of split weights: read as one fp32

  CaseOutputs() = default;
  CaseOutputs(Tensor y) { tensors.push_back(std::move(y)); }  // NOLINT(google-explicit-constructor)
  CaseOutputs(std::initializer_list<Tensor> several) : tensors(several) {}
  const Tensor& low_of(int i) const {
    static const Tensor none;
    return i == 0 ? low : none;
  }
  int64_t numel() const {
    int64_t n = 0;
    for (const Tensor& t : tensors) n += t.numel();
    return n;
  }
};

struct OpCase {
  std::string op;
  std::string name;
  std::vector<CaseInput> inputs;
  std::function<CaseOutputs(RankContext&, std::span<const CaseArgument>)> call;
};

inline void PrintTo(const OpCase& c, std::ostream* os) { *os << c.op << " " << c.name; }  // for GoogleTest

std::vector<OpCase> all_op_cases();

}  // namespace kiln
