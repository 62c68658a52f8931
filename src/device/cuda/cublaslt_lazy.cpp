// Loads cuBLASLt at its first use. Linked in the ordinary way, its 540 MB cost every start of the program 70
// ms (3 s when not in the page cache), `kiln --help` included.
//
// These are definitions of the library's own functions that pass the call on. The linker finds them before it
// looks into libcublasLt.so, and leaves that library out of the program (--as-needed) unless a function is
// used that has no definition here; so forgetting one costs start-up time and nothing else.
#include <cublasLt.h>
#include <dlfcn.h>

#include <string>

#include "base/error.h"

namespace kiln {
namespace {

void* cublaslt_library() {
  static void* const kLibrary = [] {
    const std::string name = cat("libcublasLt.so.", CUBLAS_VER_MAJOR);
    void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* reason = dlerror();
      throw Error(cat("[cuda] cannot load ", name, ": ", reason != nullptr ? reason : "no reason given"),
                  "put the CUDA toolkit's lib64 folder into LD_LIBRARY_PATH", ErrorKind::unavailable);
    }
    return library;
  }();
  return kLibrary;
}

// `like` only gives the type.
template <class Function>
Function* load(Function* /*like*/, const char* name) {
  void* address = dlsym(cublaslt_library(), name);
  if (address == nullptr) {
    throw Error(cat("[cuda] this cuBLASLt lacks ", name), "use the CUDA version kiln was built with",
                ErrorKind::unavailable);
  }
  return reinterpret_cast<Function*>(address);
}

}  // namespace
}  // namespace kiln

#define KILN_PASS_ON(result, name, parameters, arguments)      \
  result name parameters {                                     \
    static auto* const kFunction = kiln::load(&(name), #name); \
    return kFunction arguments;                                \
  }

using Status = cublasStatus_t;
using Handle = cublasLtHandle_t;
using Desc = cublasLtMatmulDesc_t;
using Layout = cublasLtMatrixLayout_t;
using Pref = cublasLtMatmulPreference_t;
using Algo = cublasLtMatmulAlgo_t;
using Found = cublasLtMatmulHeuristicResult_t;
using Type = cudaDataType_t;
using Compute = cublasComputeType_t;

extern "C" {

KILN_PASS_ON(size_t, cublasLtGetVersion, (), ())
KILN_PASS_ON(const char*, cublasLtGetStatusName, (Status status), (status))
KILN_PASS_ON(const char*, cublasLtGetStatusString, (Status status), (status))
KILN_PASS_ON(Status, cublasLtCreate, (Handle * h), (h))
KILN_PASS_ON(Status, cublasLtDestroy, (Handle h), (h))

KILN_PASS_ON(Status, cublasLtMatmulDescCreate, (Desc * desc, Compute compute, Type scale),
             (desc, compute, scale))
KILN_PASS_ON(Status, cublasLtMatmulDescDestroy, (Desc desc), (desc))
KILN_PASS_ON(Status, cublasLtMatmulDescSetAttribute,
             (Desc desc, cublasLtMatmulDescAttributes_t attr, const void* buf, size_t size),
             (desc, attr, buf, size))
KILN_PASS_ON(Status, cublasLtMatmulDescGetAttribute,
             (Desc desc, cublasLtMatmulDescAttributes_t attr, void* buf, size_t size, size_t* written),
             (desc, attr, buf, size, written))

KILN_PASS_ON(Status, cublasLtMatrixLayoutCreate,
             (Layout * m, Type type, uint64_t rows, uint64_t cols, int64_t ld), (m, type, rows, cols, ld))
KILN_PASS_ON(Status, cublasLtMatrixLayoutDestroy, (Layout m), (m))
KILN_PASS_ON(Status, cublasLtMatrixLayoutSetAttribute,
             (Layout m, cublasLtMatrixLayoutAttribute_t attr, const void* buf, size_t size),
             (m, attr, buf, size))
KILN_PASS_ON(Status, cublasLtMatrixLayoutGetAttribute,
             (Layout m, cublasLtMatrixLayoutAttribute_t attr, void* buf, size_t size, size_t* written),
             (m, attr, buf, size, written))

KILN_PASS_ON(Status, cublasLtMatmulPreferenceCreate, (Pref * pref), (pref))
KILN_PASS_ON(Status, cublasLtMatmulPreferenceDestroy, (Pref pref), (pref))
KILN_PASS_ON(Status, cublasLtMatmulPreferenceSetAttribute,
             (Pref pref, cublasLtMatmulPreferenceAttributes_t attr, const void* buf, size_t size),
             (pref, attr, buf, size))

KILN_PASS_ON(Status, cublasLtMatmulAlgoGetHeuristic,
             (Handle h, Desc desc, Layout a, Layout b, Layout c, Layout d, Pref pref, int wanted,
              Found found[], int* count),
             (h, desc, a, b, c, d, pref, wanted, found, count))
KILN_PASS_ON(Status, cublasLtMatmulAlgoGetIds,
             (Handle h, Compute compute, Type scale, Type a, Type b, Type c, Type d, int wanted, int ids[],
              int* count),
             (h, compute, scale, a, b, c, d, wanted, ids, count))
KILN_PASS_ON(Status, cublasLtMatmulAlgoInit,
             (Handle h, Compute compute, Type scale, Type a, Type b, Type c, Type d, int id, Algo* algo),
             (h, compute, scale, a, b, c, d, id, algo))
KILN_PASS_ON(Status, cublasLtMatmulAlgoCheck,
             (Handle h, Desc desc, Layout a, Layout b, Layout c, Layout d, const Algo* algo, Found* found),
             (h, desc, a, b, c, d, algo, found))
KILN_PASS_ON(Status, cublasLtMatmulAlgoCapGetAttribute,
             (const Algo* algo, cublasLtMatmulAlgoCapAttributes_t attr, void* buf, size_t size,
              size_t* written),
             (algo, attr, buf, size, written))
KILN_PASS_ON(Status, cublasLtMatmulAlgoConfigSetAttribute,
             (Algo * algo, cublasLtMatmulAlgoConfigAttributes_t attr, const void* buf, size_t size),
             (algo, attr, buf, size))
KILN_PASS_ON(Status, cublasLtMatmulAlgoConfigGetAttribute,
             (const Algo* algo, cublasLtMatmulAlgoConfigAttributes_t attr, void* buf, size_t size,
              size_t* written),
             (algo, attr, buf, size, written))

KILN_PASS_ON(Status, cublasLtMatmul,
             (Handle h, Desc desc, const void* alpha, const void* a, Layout a_desc, const void* b,
              Layout b_desc, const void* beta, const void* c, Layout c_desc, void* d, Layout d_desc,
              const Algo* algo, void* workspace, size_t workspace_bytes, cudaStream_t stream),
             (h, desc, alpha, a, a_desc, b, b_desc, beta, c, c_desc, d, d_desc, algo, workspace,
              workspace_bytes, stream))

}  // extern "C"
