// How a case is checked at a size at which its naive definition would take minutes: by problems of a few rows
// that are cut out of it. What the op gives for those rows must be what naive gives for the small problem;
// and where the gradient of the output is zero everywhere else, all gradients of the inputs and parameters
// must be, too, whatever their size. sampled_check.h does it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ops/cases/op_case.h"

namespace kiln {

// Which rows are taken. The first, the last, and random ones, as many as naive can do in time.
struct Sampling {
  uint64_t seed = 0;
  double work = 2e7;  // multiply-adds that naive may take for a forward pass
  int64_t most = 48;  // rows, unless all of them are within `work`

  // Of `total`, in order; all of them where that is within reach. At least three. `stream`: another draw.
  std::vector<int64_t> pick(int64_t total, double work_each, uint64_t stream = 0) const;
};

// A part of a tensor seen as [rows, last axis]; of one axis, or of ids, as [elements, 1].
struct Slice {
  std::vector<int64_t> rows;  // ignored where all of them are meant
  bool all_rows = false;
  int64_t col = 0, cols = 0;  // 0: all columns

  static Slice whole() { return {{}, true}; }
};

// What a call of naive takes besides its rows, as multiply-adds: where each row is a problem of its own.
inline constexpr double kCallOfNaive = 1e5;

struct SampledPart {
  struct Input {
    int of = 0;  // which input of the whole
    Slice slice;
    std::optional<double> instead = {};  // of every value: an id of another table
  };
  OpCase problem;
  std::vector<Input> inputs;   // of the problem, in order
  std::vector<Slice> outputs;  // where its outputs are in those of the whole
};

struct SampledCase {
  OpCase whole;
  std::vector<SampledPart> parts;
  // By input of the whole: what stands wherever no part is (targets that are ignored). None: random values.
  std::vector<std::optional<double>> elsewhere = {};
  // By input of the whole: its values, where parts depend on them. None: random ones.
  std::vector<std::vector<double>> values = {};
  int64_t taken = 0, total = 0;  // rows (or queries, or elements)
  bool backward = true;
  std::optional<DType> param_grad = {};  // of parameters' gradients, unless that of statistics
  std::optional<DType> dy_dtype = {};    // where outputs are narrower than inputs
  // Outputs are judged by the spacing of their own dtypes, not of the case's: an optimizer's update of fp32
  // masters and moments is far smaller than the spacing of the bf16 it is called with.
  bool by_own_dtype = false;

  double work = 0;  // of the whole, where that of the parts is 1; 0: as rows are taken

  bool complete() const { return taken == total; }
  double work_of_whole() const {
    if (work > 0) return work;
    return taken > 0 ? static_cast<double>(total) / static_cast<double>(taken) : 1;
  }
};

// For ops whose rows do not see each other: `make` gives the op on a number of rows. What it makes with as
// many leading rows (or ids) as asked for is sampled, the rest (parameters) is whole.
SampledCase sample_rows(const std::function<OpCase(int64_t rows)>& make, int64_t rows, double work_each,
                        const Sampling& sampling);

// The same op on column ranges of one packed tensor, as the parts of a packed projection are: inputs `first`
// and the `count` - 1 behind it become one.
SampledCase pack_inputs(SampledCase c, int first, int count);

}  // namespace kiln
