#include "autograd/host_floats.h"

#include <algorithm>
#include <type_traits>
#include <vector>

namespace kiln {

void download_floats(RankContext& ctx, const Tensor& from, std::span<float> out) {
  with_float(from.dtype(), [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_same_v<T, float>) {
      ctx.download(out.data(), from);
    } else {
      std::vector<T> stored(out.size());
      ctx.download(stored.data(), from);
      std::transform(stored.begin(), stored.end(), out.begin(), [](T x) { return static_cast<float>(x); });
    }
  });
}

void upload_floats(RankContext& ctx, const Tensor& to, std::span<const float> in) {
  with_float(to.dtype(), [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_same_v<T, float>) {
      ctx.upload(to, in.data());
    } else {
      std::vector<T> stored(in.size());
      std::transform(in.begin(), in.end(), stored.begin(), [](float x) { return static_cast<T>(x); });
      ctx.upload(to, stored.data());
    }
  });
}

}  // namespace kiln
