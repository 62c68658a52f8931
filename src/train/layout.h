// How the devices of a run share a model: data parallelism in one of its forms, alone or over groups of
// tensor-parallel devices, and stages of a pipeline, which kiln does not run.
#pragma once

#include <string>
#include <string_view>

namespace kiln {

struct Layout {
  std::string strategy = "none";  // none, ddp, zero1, zero2, fsdp: among the data-parallel devices
  int data = 1, tensor = 1, stages = 1;
  std::string form = "bucketed";  // of ddp

  int devices() const { return data * tensor * stages; }
  bool runs() const { return stages == 1; }  // with kiln
  std::string name() const;                  // "fsdp 8 x tp 4", "ddp 64", "pp 4 x ddp 16", "one device"
  std::string strategy_name() const;         // as --strategy of train has it
  std::string_view zero_stage() const;       // as perf/comm/zero_theory.h has it: 0, 1, 2, 3
};

}  // namespace kiln
