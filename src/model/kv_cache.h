// The keys and values of tokens a model has already read, so that the next token costs one token's work. All
// B sequences are equally long. Memory for Tmax tokens is allocated once:
//
//   keys, values   [L, B, Tmax, Hkv D]   2 L B Tmax Hkv D elements
//
// Heads are side by side within a token, as k and v leave the projection: attention reads rows at any
// stride, so a layer's first T tokens are handed to it as a view, and appending copies whole rows.
#pragma once

#include <utility>

#include "autograd/rank_context.h"
#include "model/config.h"

namespace kiln {

class KvCache {
 public:
  // `dtype` is the one the model computes in (Model::dtype).
  KvCache(RankContext& ctx, const ModelConfig& config, DType dtype, int64_t batch, int64_t capacity);

  // What such a cache takes, before it is made.
  static std::size_t bytes(const ModelConfig& config, DType dtype, int64_t batch, int64_t capacity);

  int64_t batch() const { return keys_.dim(1); }
  int64_t capacity() const { return keys_.dim(2); }
  int64_t length() const { return length_; }  // tokens of each sequence held in every layer
  void clear() { length_ = 0; }

  // Throws Error unless tokens of this shape, [B, T], can follow.
  void check_room(const Shape& tokens) const;
  // A layer's share of new tokens: k and v [B, T, Hkv D] are copied behind those held. Gives all of the
  // layer's keys and values, [B, length + T, Hkv D].
  std::pair<Tensor, Tensor> extend(RankContext& ctx, int64_t layer, const Tensor& k, const Tensor& v);
  void advance(int64_t tokens) { length_ += tokens; }  // once every layer has been extended

 private:
  Tensor append(RankContext& ctx, const Tensor& cache, int64_t layer, const Tensor& rows) const;

  Tensor keys_, values_;
  int64_t length_ = 0;
};

}  // namespace kiln
