#include "model/config.h"

#include "base/error.h"

namespace kiln {

std::string text_of(const RopeScaling& s) {
  using Kind = RopeScaling::Kind;
  switch (s.kind) {
    case Kind::none:
      return "none";
    case Kind::linear:
      return cat("linear x", s.factor);
    case Kind::dynamic:
      return cat("dynamic x", s.factor, " from ", s.trained);
    case Kind::llama3:
      break;
  }
  return cat("llama3 x", s.factor, " from ", s.trained, ", ", s.slow_turns, " to ", s.quick_turns, " turns");
}

void check_context(const ModelConfig& c, int64_t context) {
  if (c.window == 0 || context <= c.window) return;
  throw Error(
      cat("a context of ", context, " is longer than the model's attention window of ", c.window, " tokens"),
      cat("kiln has no sliding window: take a context of at most ", c.window), ErrorKind::usage);
}

void check_config(const ModelConfig& c) {
  auto refuse = [](const std::string& what, const std::string& hint) {
    throw Error(what, hint, ErrorKind::usage);
  };
  if (c.vocab < 1 || c.d_model < 1 || c.d_ff < 1 || c.layers < 1 || c.heads < 1 || c.kv_heads < 1) {
    refuse("a model dimension is below 1",
           "vocab, d_model, d_ff, layers, heads and kv_heads are all at least 1");
  }
  if (c.head_width == 0 && c.d_model % c.heads != 0) {
    refuse(cat("d_model ", c.d_model, " is not divisible by ", c.heads, " heads"),
           "choose heads that divide d_model, or set the head width");
  }
  if (c.head_dim() % 2 != 0) {
    refuse(c.head_width > 0
               ? cat("a head is ", c.head_width, " wide")
               : cat("a head is ", c.head_dim(), " wide: d_model ", c.d_model, " over ", c.heads, " heads"),
           "rotary embedding turns pairs of values: choose an even width");
  }
  if (const std::string why = c.recompute.why_not_for(c.layers); !why.empty())
    refuse(why, "--recompute none keeps everything; plan:PIECES*BLOCKS,... names every block");
  if (!(c.rope_theta > 0)) refuse(cat("rope_theta is ", c.rope_theta), "it must be positive; 10000 is usual");
  if (c.heads % c.kv_heads != 0) {
    refuse(cat(c.heads, " heads cannot share ", c.kv_heads, " key/value heads"),
           "heads must be a multiple of kv_heads");
  }
}

}  // namespace kiln
