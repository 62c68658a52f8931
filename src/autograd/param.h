// Parameters are handles. Ops and the tape hold a ParamRef, never a weight tensor, so that a strategy can
// keep the weight elsewhere (sharded over ranks) and bring it in only while it is used.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace kiln {

class RankContext;
struct Param;

// How a weight starts: normal values cut at `bound` sigma, or ones for norms.
struct ParamInit {
  enum class Kind { normal, ones } kind = Kind::normal;
  float std = 0.02f;
  float bound = 3.0f;
};

// A Hugging Face name for some rows of a packed weight: q_proj is rows [0, H*D) of the packed qkv.
struct ParamView {
  std::string name;
  int64_t row_begin;
  int64_t rows;
  ParamInit init;
};

struct RowRange {
  int64_t begin, end;
};

// A gradient's place, and whether it already holds something to add to.
struct GradSlot {
  Tensor tensor;
  bool accumulate = false;
  bool wanted() const { return tensor.defined(); }
};

// How a strategy (DDP, FSDP) takes part in the use of parameters. The defaults are a plain local model.
class ParamHooks {
 public:
  virtual ~ParamHooks() = default;
  // Before use: must leave Param::value defined, in dtype `as`, or as it is kept where that is all there is:
  // then the use casts it.
  virtual void gather(Param&, DType /*as*/) {}
  virtual void release(Param&) {}  // after use: may drop it
  // Before a contribution: must leave Param::grad defined. A strategy whose buffer lives for one micro-step
  // only clears Param::touched when it hands out a new one, so that the first contribution writes.
  virtual void grad_begin(Param&) {}
  virtual void grad_ready(Param&) {}  // all contributions of this micro-step have arrived
};

struct Param {
  std::string name;  // of the packed buffer; views carry the names that go to disk
  Shape shape;       // [out, in] or [n]
  bool decay = true;
  bool trainable = true;
  std::vector<ParamView> views;

  // Storage, set by ParamStore or a strategy.
  Tensor value;                  // undefined while not gathered
  Tensor grad;                   // a range of the gradient arena, or a strategy's buffer
  int64_t offset = 0;            // elements, in this rank's flat buffers
  int64_t padded = 0;            // elements of the whole, a multiple of world x 16 bytes
  int shards = 1;                // equal pieces it is kept in, one on each rank; 1: whole on every rank
  DType kept = DType::f32;       // dtype of the value as it is kept
  std::optional<DType> cast_to;  // matmuls use it in this dtype, cast at each use; empty: as it is kept

  // One step's bookkeeping: which rows hold a gradient already, and how many contributions a micro-step
  // brings.
  std::vector<RowRange> touched;
  int expected = 0;  // uses seen in forward; a tied weight has two
  int arrived = 0;

  ParamHooks* hooks = nullptr;

  int64_t local() const { return padded / shards; }  // elements in this rank's flat buffers
};

// A parameter, or some rows of a packed one.
struct ParamRef {
  Param* param = nullptr;
  int64_t row_begin = 0;
  int64_t rows = 0;

  ParamRef() = default;
  ParamRef(Param& p) : param(&p), row_begin(0), rows(p.shape[0]) {}  // NOLINT(google-explicit-constructor)
  static ParamRef view(Param& p, int index) {
    ParamRef r;
    r.param = &p;
    r.row_begin = p.views[index].row_begin;
    r.rows = p.views[index].rows;
    return r;
  }
  Shape shape() const {
    Shape s = param->shape;
    s[0] = rows;
    return s;
  }
};

// A parameter in use: gathered on construction, released on destruction.
class ParamUse {
 public:
  // `counts`: this use will bring a gradient contribution (a forward whose backward will come).
  ParamUse(const ParamRef& ref, bool counts);
  // Used with activations of dtype `beside`: if that is what the weight is to be cast to, the tensor is a
  // cast (Tag::param), which lives as long as this.
  ParamUse(RankContext& ctx, const ParamRef& ref, DType beside, bool counts);
  ~ParamUse();
  ParamUse(const ParamUse&) = delete;
  ParamUse& operator=(const ParamUse&) = delete;
  const Tensor& tensor() const { return tensor_; }

 private:
  ParamUse(const ParamRef& ref, std::optional<DType> beside, bool counts);

  Param* param_;
  Tensor tensor_;
};

// Opens the gradient rows behind `ref`: first touch of a step writes, later ones add. Call param_grad_done
// when the contribution is complete.
GradSlot param_grad(const ParamRef& ref);
void param_grad_done(Param& param);

}  // namespace kiln
