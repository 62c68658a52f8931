// The work of `kiln tune`: the GEMMs of real training steps, each measured with every algorithm the
// library suggests for it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "autograd/precision.h"
#include "device/device.h"
#include "model/model_options.h"
#include "perf/timing/host_load.h"
#include "tune/tune_file.h"

namespace kiln {

struct TuneRequest {
  std::vector<NamedModel> sizes;
  std::vector<int64_t> contexts = {512};
  std::vector<Precision> precisions = {Precision::bf16};
  std::string variants;  // on top of the optimized preset
  Recompute recompute = Recompute::none;
  int64_t batch = 4;
  int micro_steps = 1;
  Device device;
  uint64_t seed = 0;
};

// The GEMMs of one step.
struct TunedStep {
  NamedModel size;
  int64_t context = 0;
  Precision precision = Precision::bf16;
  std::vector<MatmulChoice> products;  // calls: in one step
  double default_us() const;           // of all its GEMMs
  double tuned_us() const;
};

struct TuneReport {
  TunePlace place;
  std::string file;  // where the choices were written
  std::vector<TunedStep> steps;
  std::size_t choices = 0;  // the file holds, those of earlier measurements with them
  HostLoad load;            // while they were measured
};

using TuneNote = std::function<void(const std::string& text)>;

// Throws Error(unavailable) for a device without a choice, before anything is run. `progress` is told what is
// being measured, `say` what a person must know; `out` is the folder of the file.
TuneReport tune(const TuneRequest& request, const std::string& out, const TuneNote& progress,
                const TuneNote& say);

// "2048x2304x768 bf16*bf16T->bf16": a problem without its strides and alignments.
std::string readable_problem(const std::string& problem);

}  // namespace kiln
