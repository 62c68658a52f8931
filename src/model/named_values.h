// Values of a rank's flat buffers by the names that go to disk, as fp32, in pieces: weights
// (model/param_values.h) or an optimizer's moments (train/checkpoint/moment_values.h). A rank may hold a
// weight whole, in part or not at all: some rows or columns of it (tensor parallelism), a range of those
// (sharding). What is written to a name goes to the part that is here.
#pragma once

#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "model/element_runs.h"
#include "model/weight_source.h"

namespace kiln {

// Elements of a weight, one after the other from `at` of the flat buffer on.
struct ValuePiece {
  ElementRuns elements;
  int64_t at;
};

class NamedValues : public WeightSource {
 public:
  // All of it must be here: Error otherwise.
  void read(const WeightSpec& weight, int64_t first_row, std::span<float> out) override;
  // Those of the values that are here.
  void write(const WeightSpec& weight, int64_t first_row, std::span<const float> values);
  // Whether any of these rows is.
  bool holds(const WeightSpec& weight, int64_t first_row, int64_t rows) const;

  // What is here of a weight, in its order; none where the rank has nothing of it.
  std::span<const ValuePiece> pieces(const std::string& name) const;
  // From `at` of the flat buffer on.
  virtual void download(int64_t at, std::span<float> out) = 0;
  // One past the last place of the flat buffer that a weight has.
  int64_t extent() const;

 protected:
  explicit NamedValues(const char* what) : what_(what) {}
  virtual void upload(int64_t at, std::span<const float> in) = 0;
  // Elements [begin, begin + count) of the flat parameter, which is `part` of the weights on disk, are at
  // `at`. Its views get their parts.
  void add(const Param& p, const ParamPart& part, int64_t begin, int64_t count, int64_t at);
  void take_places(const NamedValues& other) { weights_ = other.weights_; }

 private:
  struct Weight {
    Shape shape;  // of the whole
    std::vector<ValuePiece> pieces;
  };
  const Weight& find(const WeightSpec& weight, int64_t first_row, int64_t count) const;
  template <class F>
  static int64_t for_each_part(const Weight& w, int64_t begin, int64_t count, F&& f);

  const char* what_;  // "weight" or "moment", for messages
  std::unordered_map<std::string, Weight> weights_;
};

}  // namespace kiln
