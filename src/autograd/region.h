// A region: a function of tensors between two matmuls, which a compiler may run as fewer kernels than it has
// ops. What the model says where it calls one is what it computes; a rank runs it as it is written, or, where
// the model asks for it, as one node of the tape. Implemented by compile/.
//
//   compiled(ctx, {"swiglu", {}, [](RankContext& c, const RegionInputs& in) {
//              return Tensors{swiglu(c, in.tensors[0], in.tensors[1])};
//            }}, {{gate, up}, {}})[0]
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "autograd/remake.h"

namespace kiln {

struct RegionInputs {
  SmallVector<Tensor, 4> tensors;
  SmallVector<ParamRef, 2> params;
};

struct Region {
  const char* name = "";  // the ops inside, "add+rms_norm"; must live as long as the program
  std::string key = {};   // what `run` has captured, if that changes what it computes: "eps=1e-05"
  // Must depend on its inputs alone, and call nothing but ops. It is run once, on meta, to be recorded.
  std::function<Tensors(RankContext&, const RegionInputs&)> run;
  int in_place =
      0;  // so many outputs, from the first on, may take the memory of the inputs of the same number
};

class RegionCompiler {
 public:
  virtual ~RegionCompiler() = default;
  virtual Tensors run(RankContext& ctx, const Region& region, const RegionInputs& in) = 0;
  virtual double seconds() const = 0;  // spent on recording and planning so far
};
std::unique_ptr<RegionCompiler> make_region_compiler();

// Compiled at its first call with such inputs, then run. Throws Error where this device cannot, or where an
// op of the region has no primitives: see why_not_compiled().
Tensors compiled(RankContext& ctx, const Region& region, const RegionInputs& in);

// Why nothing is compiled on a device; empty where it is.
std::string why_not_compiled(const Device& device);

// Seconds that a rank has spent on recording and planning regions.
double compile_seconds(RankContext& ctx);

}  // namespace kiln
