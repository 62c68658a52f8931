// Runs a case on a device and dtype: draws inputs, calls the op, goes backward, brings everything home as
// double.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "ops/cases/op_case.h"

namespace kiln {

struct CaseData {
  // Values exactly representable in the dtype they were drawn for. Fewer than an input has elements repeat.
  std::vector<std::vector<double>> inputs;
  std::vector<double> dy;  // the gradient of the output, or of all outputs in order
};

struct CaseResult {
  std::vector<double> y;                   // all outputs, one after the other
  std::vector<std::vector<double>> grads;  // per input; empty for those without a gradient
  MemoryStats memory;
};

// Draws inputs for `dtype`; the same for the same case and seed. `outputs` is the size of the op's output.
CaseData draw_case(const OpCase& c, DType dtype, uint64_t seed);

struct CaseOptions {
  bool backward = true;
  int times = 1;  // forward and backward this often without clearing gradients: later passes must add
};

// On meta there are no numbers: y and grads stay empty.
CaseResult run_case(RankContext& ctx, const OpCase& c, const CaseData& data, DType dtype,
                    const CaseOptions& options = {});

// A case's arguments on the device, to call as often as one likes: what run_case and the benches run on.
class CaseSetup {
 public:
  // `wants`: which inputs get a gradient, by name; empty: all that can. `param_grad`: the dtype of
  // parameters' gradients, unless it is that of statistics.
  CaseSetup(RankContext& ctx, const OpCase& c, const CaseData& data, DType dtype,
            const std::vector<std::string>& wants = {}, std::optional<DType> param_grad = {});
  CaseSetup(const CaseSetup&) = delete;
  CaseSetup& operator=(const CaseSetup&) = delete;

  std::span<const CaseArgument> arguments() const { return arguments_; }
  // Of input i after backward; undefined where it has none.
  Tensor gradient(int i) const;
  // The next backward writes gradients instead of adding to them. It forgets the tape, unless another set-up
  // has begun on it whose turn comes later.
  void begin_step(bool fresh_tape = true);
  // A gradient for each output, from one list of values for all of them; on meta there are no values.
  SmallVector<Tensor, 2> upload_gradients(const CaseOutputs& y, const std::vector<double>& values);
  // Backward from all outputs, with gradients that from here on belong to the tape, until that is `floor`
  // nodes long.
  void backward(const CaseOutputs& y, SmallVector<Tensor, 2> grads, int floor = 0);

 private:
  RankContext& ctx_;
  std::vector<bool> watched_;
  std::deque<Param> params_;
  std::vector<CaseArgument> arguments_;
};

// The first `period` values of each input, to be repeated; no output gradient.
CaseData draw_periods(const OpCase& c, DType dtype, uint64_t seed, int64_t period);
std::vector<double> draw_gradient(const OpCase& c, DType dtype, uint64_t seed);  // of the outputs

// A dense tensor's values.
std::vector<double> fetch(RankContext& ctx, const Tensor& t);
// The same of split weights by both halves; `low` undefined: as fetch().
std::vector<double> fetch_joined(RankContext& ctx, const Tensor& high, const Tensor& low);

// As draw_case, but values repeat after 64 Ki elements: for sizes where drawing would take longer than
// running. No output gradient.
CaseData draw_repeating(const OpCase& c, DType dtype, uint64_t seed);
std::vector<double> repeat_to(std::vector<double> values, int64_t count);

// ||a - b|| / ||b||, or ||a|| where b is zero. NaN in one place only gives infinity.
double relative_error(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace kiln
