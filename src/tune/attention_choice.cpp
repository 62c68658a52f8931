#include "tune/attention_choice.h"

#include "base/error.h"

namespace kiln {

std::string AttentionShape::str() const {
  return cat(variant, " ", batch, " x ", heads, "/", kv_heads, " heads x ", queries, "/", keys, " x ", width,
             causal ? " causal " : " full ", name_of(dtype));
}

std::string AttentionTiles::str() const {
  return cat(queries, " x ", keys, ", ", stages, stages == 1 ? " stage" : " stages");
}

}  // namespace kiln
