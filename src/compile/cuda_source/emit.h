// A kernel of a program as CUDA C++, for NVRTC. A block takes rows in turn; a thread has the same columns of
// each row, in accesses of 16 bytes where the widths allow, and keeps what it has read in registers while
// reductions over the row are taken, which all that follows then reads. A sum over all rows is kept per
// thread over the rows of its block, written once, and added up in order by a second kernel, so that the bits
// do not change.
#pragma once

#include <string>
#include <vector>

#include "compile/fuse.h"

namespace kiln::compile {

// An argument, in order: rows, then for each memory its pointer and the elements from a row to the next.
struct CudaArgument {
  int value = -1;
  DType dtype = DType::f32;
  bool written = false;
  bool partial = false;  // of a sum over all rows: [blocks, width]
};

struct CudaKernel {
  std::string name, source;
  int threads = 32;
  int vector = 1;  // elements of an access
  bool one_row = false;
  std::vector<CudaArgument> arguments;
};

// Why a kernel has no CUDA form; empty: it has one.
std::string why_not_cuda(const Program& p, const Kernel& k);

// All kernels of a program, each named `name` and a number.
std::vector<CudaKernel> emit_cuda(const Program& p, const std::string& name);

// What every kernel's source begins with.
std::string_view cuda_prelude();

}  // namespace kiln::compile
