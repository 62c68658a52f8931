// The findings of `kiln doctor`, apart from their printing.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "device/cpu/cpu_features.h"
#include "device/cpu/host_limits.h"
#include "device/gpu_info.h"
#include "perf/timing/ceilings.h"
#include "perf/timing/device_ceilings.h"
#include "perf/timing/host_load.h"

namespace kiln {

// An optional part of kiln: built in, or left out at a price.
struct Part {
  std::string_view name;
  bool built_in;
  std::string detail;        // of one that is built in
  std::string_view without;  // what is lost where it is left out
};

struct Problem {
  std::string what;
  std::string remedy;
};

// A matmul as a run would do it: y = x W^T, 512 x 512 x 512.
struct MeasuredGemm {
  DType dtype;
  std::string variant;
  double flops_per_second = 0;
  std::string wrong = {};  // what it computes instead, and so was not timed; empty: nothing
};

struct DoctorFacts {
  std::string cpu_model;
  CpuFeatures features;
  CpuIsa isa = CpuIsa::plain;  // what kernels will use
  std::string isa_forced;      // KILN_CPU_ISA as it is in the environment, or empty
  std::string isa_refused;     // why that cannot be had, or empty
  std::string isa_refused_hint;
  std::optional<CpuCeilings> ceilings;  // with all threads and with one; nothing unless measured
  std::vector<MeasuredGemm> gemms;
  HostLimits limits;
  HostLoad load;  // while ceilings were measured, or a moment
  std::vector<GpuInfo> gpus;
  struct MeasuredGpu {
    int index;
    DeviceCeilings ceilings;
    std::string failed;  // why there are none, or empty
  };
  std::vector<MeasuredGpu> gpu_ceilings;  // nothing unless measured
  std::string why_no_gpu;                 // empty when there is one
  std::size_t cublaslt_version = 0;
  std::vector<Part> parts;
  std::vector<std::string> transports;  // that ranks can use here
  std::vector<Problem> problems;
};

// `measure`: ceilings and GEMMs too, about a second, and as much for each GPU.
DoctorFacts examine_machine(bool measure = false);

// The problems that follow from the other facts; apart, so that machines we do not have can be tested.
// `gpu_in_machine`: the kernel has an NVIDIA device, whether or not we can use it.
std::vector<Problem> find_problems(const DoctorFacts& facts, bool built_with_cuda,
                                   std::string_view cuda_archs, bool gpu_in_machine);

}  // namespace kiln
