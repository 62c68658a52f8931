// Names of kernels, as the linker sees them and as people read them.
#pragma once

#include <string>

namespace kiln {

// Is it a library's? Ours stand in kiln's namespace. The one thing about a kernel that its op cannot say: an
// op that has products and more runs the products by a library.
bool of_a_library(const std::string& name);

// The kernel, its template arguments and the type of its first parameter, which tells the forward_kernel of
// one op from that of another: "rms_norm_rows::forward_kernel<bf16, 2, true>(RmsNormProblem)".
std::string short_kernel_name(const std::string& name);

}  // namespace kiln
