// Where named weights come from, a few rows at a time: a model in memory, a folder on disk, a random draw.
// Saving and loading a model iterates over one of these, and never holds a second copy of it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "autograd/param_store.h"
#include "model/config.h"

namespace kiln {

// A tensor under the name that goes to disk.
struct WeightSpec {
  std::string name;
  Shape shape;  // [rows, columns] or [n]
  ParamInit init;

  int64_t rows() const { return shape[0]; }
  int64_t columns() const { return shape.rank() == 1 ? 1 : shape[1]; }
};

// All weights of a model, in the order they are used. A tied head is not among them.
std::vector<WeightSpec> weight_specs(const ModelConfig& config);

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // Rows of the weight from `first_row` on, as many as `out` holds, as fp32.
  virtual void read(const WeightSpec& weight, int64_t first_row, std::span<float> out) = 0;
};

// Calls f(first_row, rows) over a weight in pieces of a few MiB, `unit` rows never apart.
template <class F>
void for_each_piece(const WeightSpec& weight, int64_t unit, F&& f) {
  constexpr int64_t kElements = int64_t{1} << 20;
  const int64_t units = std::max<int64_t>(1, kElements / (weight.columns() * unit));
  for (int64_t row = 0; row < weight.rows(); row += units * unit)
    f(row, std::min(units * unit, weight.rows() - row));
}

// What `--random` writes: the values a fresh ParamStore has, without the store.
class RandomWeights final : public WeightSource {
 public:
  explicit RandomWeights(RankContext& ctx) : ctx_(ctx) {}
  void read(const WeightSpec& weight, int64_t first_row, std::span<float> out) override;

 private:
  RankContext& ctx_;
};

}  // namespace kiln
