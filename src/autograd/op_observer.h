// The interface for observing ops: tracers, cost counters and the non-finite check attach here, so that no
// op carries instrumentation of its own.
#pragma once

#include <span>
#include <string_view>

#include "base/cost.h"
#include "tensor/tensor.h"

namespace kiln {

class RankContext;

struct NamedTensor {
  const char* name;
  Tensor tensor;
};

struct OpEvent {
  std::string_view op, variant;
  std::string_view scope;  // "layers.3.attention"
  Pass pass;
  bool recomputed;  // running again for backward
  Cost cost;
  std::span<const NamedTensor> outputs;  // written when on_op_end is called
};

class OpObserver {
 public:
  virtual ~OpObserver() = default;
  virtual void on_op_begin(RankContext&, const OpEvent&) {}
  virtual void on_op_end(RankContext&, const OpEvent&) {}
};

}  // namespace kiln
