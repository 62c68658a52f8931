#include "peers.h"

// Declared here and not by <cblas.h>: several packages install a file of that name.
extern "C" {
void cblas_sgemm(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float* a,
                 int lda, const float* b, int ldb, float beta, float* c, int ldc);
char* openblas_get_config(void);
char* openblas_get_corename(void);
}

namespace kiln {
namespace {

class OpenBlasGemm : public PeerGemm {
 public:
  explicit OpenBlasGemm(const PeerProblem& p) : p_(p) {}
  void run() override {
    constexpr int kRowMajor = 101, kPlain = 111, kTransposed = 112;
    const int M = static_cast<int>(p_.M), N = static_cast<int>(p_.N), K = static_cast<int>(p_.K);
    cblas_sgemm(kRowMajor, p_.transpose_a ? kTransposed : kPlain, p_.transpose_b ? kTransposed : kPlain, M, N,
                K, 1, static_cast<const float*>(p_.a), p_.transpose_a ? M : K,
                static_cast<const float*>(p_.b), p_.transpose_b ? K : N, 0, static_cast<float*>(p_.c), N);
  }

 private:
  PeerProblem p_;
};

}  // namespace

std::unique_ptr<PeerGemm> openblas_gemm(const PeerProblem& p) {
  if (p.in != DType::f32 || p.out != DType::f32) return nullptr;
  return std::make_unique<OpenBlasGemm>(p);
}

std::string openblas_name() {
  const std::string config = openblas_get_config();  // "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ..."
  const auto end = config.find(' ', config.find(' ') + 1);
  return config.substr(0, end) + " (" + openblas_get_corename() + ")";
}

}  // namespace kiln
