// What the ranks of a run have, assembled under the names that go to disk: weights or gradients of a model
// that is cut by tensor parallelism, by a sharding strategy, or both. What several ranks have must be the
// same bits.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "autograd/host_floats.h"
#include "autograd/param_store.h"

namespace kiln {

class WholeWeights {
 public:
  // `flat`: the store's values or gradients. May be called by several ranks at once.
  void take(RankContext& ctx, const ParamStore& store, const Tensor& flat) {
    for (const Param& p : store.params()) {
      const bool cut = store.layout().sharded || flat.numel() < store.total();
      const Tensor piece = store.piece(flat, p, cut ? store.data_rank() : 0, cut ? store.data_world() : 1);
      const int64_t begin = piece.numel() < p.padded ? piece.numel() * store.data_rank() : 0;
      const int64_t count = std::min(piece.numel(), p.shape.numel() - begin);
      if (count <= 0) continue;
      std::vector<float> values(static_cast<std::size_t>(count));
      download_floats(ctx, piece.narrow(0, 0, count), values);
      const std::lock_guard lock(mutex_);
      for (int64_t i = 0; i < count; ++i) put(store, p, begin + i, values[static_cast<std::size_t>(i)]);
    }
  }

  bool complete() const {
    for (const auto& [name, values] : weights_) {
      for (const auto& v : values) {
        if (!v) return false;
      }
    }
    return !weights_.empty();
  }
  std::size_t count() const { return weights_.size(); }
  // One of them, which must be complete.
  std::vector<float> whole(const std::string& name) const {
    std::vector<float> values;
    for (const auto& v : weights_.at(name)) values.push_back(v.value());
    return values;
  }

  friend bool operator==(const WholeWeights& a, const WholeWeights& b) { return a.weights_ == b.weights_; }

  // The largest, over weights, of |a - b| / |b|.
  friend double distance(const WholeWeights& a, const WholeWeights& b) {
    double worst = a.weights_.size() == b.weights_.size() ? 0 : 1e30;
    for (const auto& [name, wanted] : b.weights_) {
      const auto found = a.weights_.find(name);
      if (found == a.weights_.end() || found->second.size() != wanted.size()) return 1e30;
      double square = 0, apart = 0;
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        const double x = found->second[i].value_or(NAN), y = wanted[i].value_or(NAN);
        square += y * y;
        apart += (x - y) * (x - y);
      }
      const double far = std::sqrt(apart / std::max(square, 1e-30));
      if (!(far <= worst)) worst = far;  // NaN counts as far
    }
    return worst;
  }

 private:
  void put(const ParamStore& store, const Param& p, int64_t i, float value) {
    const ParamPart& part = store.part(p);
    const int64_t columns = p.shape.rank() == 1 ? 1 : p.shape[1];
    const int64_t whole_columns = part.whole_columns > 0 ? part.whole_columns : columns;
    std::size_t v = 0;
    while (i / columns >= p.views[v].row_begin + p.views[v].rows) ++v;
    const ParamView& view = p.views[v];
    const ParamPart::Rows rows = part.rows.empty() ? ParamPart::Rows{0, view.rows} : part.rows[v];
    auto& whole = weights_[view.name];
    whole.resize(static_cast<std::size_t>(rows.whole * whole_columns));
    const int64_t row = rows.first + i / columns - view.row_begin;
    auto& place = whole.at(static_cast<std::size_t>(row * whole_columns + part.first_column + i % columns));
    if (place) {
      EXPECT_EQ(*place, value) << view.name << ", element " << i << " of a part";
    }
    place = value;
  }

  std::mutex mutex_;
  std::map<std::string, std::vector<std::optional<float>>> weights_;
};

}  // namespace kiln
