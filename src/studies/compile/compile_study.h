// The work of `kiln compile`: the regions of a model, recorded on meta, with the kernels that each is
// compiled to, what they move beside what the ops move by themselves, and what they take on this CPU.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "autograd/precision.h"
#include "compile/plan.h"
#include "model/model_options.h"
#include "report/tables/study_page.h"
#include "rows/row_status.h"

namespace kiln {

enum class CompileShow : uint8_t { attention, block, model };

struct CompileRequest {
  NamedModel size = {};
  CompileShow show = CompileShow::block;
  int64_t batch = 4, context = 512;
  Precision precision = Precision::fp32;
  bool graph = false;      // also each region's graph
  bool source = false;     // also its CUDA source
  std::string arch = {};   // also compile the source for it, with NVRTC: sm_90a
  std::string cache = {};  // folder of compiled kernels
  bool measure = true;     // also run the kernels here
  int threads = 0;
  uint64_t seed = 0;
};

// One kernel of a pass of a region.
struct CompiledKernelRow {
  std::string region, pass;
  int calls = 0;  // of the region in a step of what is shown
  int kernel = 0;
  std::vector<std::string> ops;
  double bytes = 0, flops = 0;
  double pass_bytes = 0, ops_bytes = 0, apart_bytes = 0;  // of the pass: its kernels; its ops as fused ops of
                                                          // their own; every value as a pass over memory
  std::optional<double> measured_ms;
  std::string why;
  std::optional<std::size_t> code_bytes;  // as NVRTC compiled it
};

struct RegionText {
  std::string name, graph, plan, source;
};

struct CompileReport {
  CompileRequest request;
  std::vector<CompiledKernelRow> rows;
  std::vector<RegionText> texts;
  double plan_ms = 0;   // recording and planning all regions
  double nvrtc_ms = 0;  // compiling their CUDA sources
  int from_cache = 0, compiled = 0;
  std::string compiler;     // "NVRTC 13.0"
  RowOutcome checked = {};  // the regions against their ops, before any is timed
  std::vector<std::string> notes;
};

CompileReport compile_study(const CompileRequest& request);
StudyPage compile_page(const CompileReport& report);

}  // namespace kiln
