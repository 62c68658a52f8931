// Checks an op at the size at which it is timed: its sampled rows against naive in fp64.
//
// A tensor may be at most twice as far from fp64 as naive is in the same dtype, plus a quarter of the dtype's
// spacing. Of a few values naive's own error may happen to be nothing, so there it is two spacings.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/variant_choice.h"
#include "ops/cases/run_case.h"
#include "ops/cases/sampled_case.h"

namespace kiln {

// The error that decided: of the tensor that came closest to its limit.
struct Finding {
  std::string tensor;  // "y", "dweight"
  double error = 0, allowed = 0;
};

struct SampledResult {
  bool passed = true;
  Finding worst;
  std::string reason;  // each tensor that is too far off
};

// Adds one finding to the result.
void judge(SampledResult& result, const Finding& finding);

// The variant that defines each op on the CPU: naive, or where there is none, the op made of other ops.
VariantChoice defining_variants();

// What the definition gives. For one dtype; a check of any variant on any device reads it.
class SampledReference {
 public:
  SampledReference(SampledCase c, DType dtype, uint64_t seed, int threads);

  // Runs the whole case on `ctx`, by the variants it is set to, and compares. Throws where it cannot run.
  SampledResult check(RankContext& ctx) const;

  const SampledCase& sampled() const { return case_; }
  double seconds() const { return seconds_; }  // of naive, in the dtype, on all parts

 private:
  struct Values {
    std::vector<double> exact, low;
  };
  // Of a tensor seen as rows: expected values by row and first column. A row of -1: the whole tensor.
  struct Expected {
    int64_t width = 1;
    std::map<std::pair<int64_t, int64_t>, Values> runs;
    void add(const Slice& slice, int64_t rows, const double* exact, const double* low);
    void expect_zeros(int64_t rows, uint64_t seed);  // in some rows that no part reaches
  };
  // The output's gradient where it is not zero.
  struct RowGradient {
    int output = 0;
    int64_t row = 0, col = 0;
    std::vector<double> values;
  };

  void run_part(const SampledPart& part, std::size_t index, uint64_t seed, RankContext& naive);
  std::vector<double> gather(const CaseInput& in, const std::vector<double>& period,
                             const Slice& slice) const;
  void place(RankContext& ctx, const CaseSetup& setup) const;
  SmallVector<Tensor, 2> make_gradients(RankContext& ctx, const CaseOutputs& y) const;
  Finding compare(RankContext& ctx, const std::string& name, const Tensor& t, const Tensor& low,
                  const Expected& expected) const;

  SampledCase case_;
  DType dtype_;
  CaseData periods_;
  std::vector<Shape> output_shapes_;  // of the whole
  std::vector<Expected> outputs_, gradients_;
  std::vector<RowGradient> dy_;
  double seconds_ = 0;
};

}  // namespace kiln
