// Names of kernels, mangled and readable.
#pragma once

#include <string>

namespace kiln {

// Is it a library's? Ours are in kiln's namespace. The op alone cannot tell: one that does matmuls and more
// calls a library for the matmuls.
bool of_a_library(const std::string& name);

// The kernel, its template arguments and the type of its first parameter, which distinguishes the
// forward_kernel of one op from that of another: "rms_norm_rows::forward_kernel<bf16, 2,
// true>(RmsNormProblem)".
std::string short_kernel_name(const std::string& name);

}  // namespace kiln
