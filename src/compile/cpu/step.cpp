#include "compile/cpu/step.h"

#include <cmath>
#include <cstring>
#include <type_traits>

#define KILN_SIMD_FILE "compile/cpu/step_simd.h"
#include "device/cpu/simd_each.h"

namespace kiln::compile {

StepFn step_f32(CpuIsa isa) { return KILN_SIMD_PICK(isa, run_step); }

}  // namespace kiln::compile
