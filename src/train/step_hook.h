// What attaches to the training loop around each step: fault injection, the comparison of replicas, the watch
// for slow ranks. On every rank, in the same order.
#pragma once

#include <cstdint>

namespace kiln {

class StepHook {
 public:
  virtual ~StepHook() = default;
  // Whether the step's result must be there, and the device idle, before after_step(): then the host does
  // not queue the next step meanwhile.
  virtual bool needs_result(int64_t /*step*/) const { return false; }
  virtual void before_step(int64_t /*step*/) {}
  virtual void after_step(int64_t /*step*/) {}  // before its save and validation
};

}  // namespace kiln
