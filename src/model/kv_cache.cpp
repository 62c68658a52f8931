#include "model/kv_cache.h"

namespace kiln {
namespace {

Shape cache_shape(const ModelConfig& c, int64_t batch, int64_t capacity) {
  if (batch < 1 || capacity < 1)
    throw Error(cat("a cache for ", batch, " sequences of ", capacity, " tokens; both must be 1 or more"));
  return {c.layers, batch, capacity, c.kv_heads * c.head_dim()};
}

}  // namespace

KvCache::KvCache(RankContext& ctx, const ModelConfig& config, DType dtype, int64_t batch, int64_t capacity)
    : keys_(ctx.empty(cache_shape(config, batch, capacity), dtype)),
      values_(ctx.empty(keys_.shape(), dtype)) {}

std::size_t KvCache::bytes(const ModelConfig& config, DType dtype, int64_t batch, int64_t capacity) {
  return 2 * static_cast<std::size_t>(cache_shape(config, batch, capacity).numel()) * size_of(dtype);
}

void KvCache::check_room(const Shape& tokens) const {
  if (tokens.rank() != 2 || tokens[0] != batch() || tokens[1] < 1)
    throw Error(cat("tokens ", tokens.str(), " do not continue a cache of ", batch(),
                    " sequences; expected [", batch(), ", 1 or more]"));
  if (tokens[1] > capacity() - length_)
    throw Error(cat("the cache holds ", length_, " of at most ", capacity(), " tokens; ", tokens[1],
                    " more do not fit"),
                "clear it and restart with the last tokens, or make it larger");
}

std::pair<Tensor, Tensor> KvCache::extend(RankContext& ctx, int64_t layer, const Tensor& k, const Tensor& v) {
  return {append(ctx, keys_, layer, k), append(ctx, values_, layer, v)};
}

Tensor KvCache::append(RankContext& ctx, const Tensor& cache, int64_t layer, const Tensor& rows) const {
  const int64_t T = rows.dim(1), width = cache.dim(3);
  const Tensor held = cache.narrow(0, layer, 1).reshape({batch(), capacity(), width});
  const Tensor place = held.narrow(1, length_, T);
  if (!(rows.shape() == place.shape()) || rows.dtype() != cache.dtype())
    throw Error(cat("keys or values ", rows.shape().str(), " ", name_of(rows.dtype()),
                    " do not fit into a cache of ", place.shape().str(), " ", name_of(cache.dtype())));
  const std::size_t element = size_of(cache.dtype());
  for (int64_t b = 0; b < batch(); ++b) {
    ctx.backend().copy_rows(place.narrow(0, b, 1).raw(), static_cast<std::size_t>(place.stride(1)) * element,
                            rows.narrow(0, b, 1).raw(), static_cast<std::size_t>(rows.stride(1)) * element,
                            static_cast<std::size_t>(width) * element, static_cast<std::size_t>(T),
                            ctx.compute());
  }
  return held.narrow(1, 0, length_ + T);
}

}  // namespace kiln
