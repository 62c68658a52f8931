#include "model/regions.h"

#include "model/config.h"
#include "ops/add_rms_norm/add_rms_norm.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/swiglu/swiglu.h"

namespace kiln {

Region norm_region(float eps) {
  return {"rms_norm", cat("eps=", eps), [eps](RankContext& c, const RegionInputs& in) {
            return Tensors{rms_norm(c, in.tensors[0], in.params[0], eps)};
          }};
}

Region sum_norm_region(float eps) {
  return {"add+rms_norm", cat("eps=", eps), [eps](RankContext& c, const RegionInputs& in) {
            const AddRmsNormResult r = add_rms_norm(c, in.tensors[0], in.tensors[1], in.params[0], eps);
            return Tensors{r.sum, r.normed};
          }};
}

Region rope_region(const RopeOptions& options) {
  RopeOptions apart = options;  // in place or not is the compiler's matter
  apart.in_place = false;
  const Region turn{"rope",
                    cat(options.heads, "/", options.kv_heads, " heads theta ", options.theta, " from ",
                        options.offset, options.interleaved ? " interleaved" : "", " scaling ",
                        text_of(options.scaling), " length ", options.length),
                    [apart](RankContext& c, const RegionInputs& in) {
                      const RopeResult turned = rope(c, in.tensors[0], in.tensors[1], apart);
                      return Tensors{turned.q, turned.k};
                    },
                    /*in_place=*/2};
  return turn;
}

Region swiglu_region() {
  return {"swiglu", {}, [](RankContext& c, const RegionInputs& in) {
            return Tensors{swiglu(c, in.tensors[0], in.tensors[1])};
          }};
}

Region loss_region() {
  return {"cross_entropy", {}, [](RankContext& c, const RegionInputs& in) {
            return Tensors{cross_entropy(c, in.tensors[0], in.tensors[1])};
          }};
}

}  // namespace kiln
