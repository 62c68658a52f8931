// How the ranks of a run share parameters and gradients. A strategy attaches through the parameters' hooks
// and a few calls of the step; the model knows nothing of it. This one is the plain single process.
#pragma once

#include "autograd/param_store.h"

namespace kiln {

class Strategy : public ParamHooks {
 public:
  virtual bool shards_params() const { return false; }
  // Called once, after the parameters have their storage.
  virtual void attach(ParamStore&) {}
  virtual void begin_step() {}
  virtual void begin_micro_step(bool /*last*/) {}  // gradients are shared out on the last one
  virtual void finish_gradients() {}               // all gradients of the step are complete when this returns
  // Makes loss and sum of squares those of the whole run, so that every rank comes to the same verdict.
  virtual void reduce_scalars(const Tensor& /*scalars*/) {}
  // Ranks that meet on the host cannot be replayed by the device alone.
  virtual bool can_capture() const { return true; }
};

}  // namespace kiln
