#include <dnnl.hpp>

#include "base/error.h"
#include "peers.h"

namespace kiln {
namespace {

using Tag = dnnl::memory::format_tag;

dnnl::memory::data_type type_of(DType t) {
  return t == DType::f32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
}

class OneDnnGemm : public PeerGemm {
 public:
  explicit OneDnnGemm(const PeerProblem& p)
      : engine_(dnnl::engine::kind::cpu, 0),
        stream_(engine_),
        a_({{p.M, p.K}, type_of(p.in), p.transpose_a ? Tag::ba : Tag::ab}, engine_, const_cast<void*>(p.a)),
        b_({{p.K, p.N}, type_of(p.in), p.transpose_b ? Tag::ba : Tag::ab}, engine_, const_cast<void*>(p.b)),
        c_({{p.M, p.N}, type_of(p.out), Tag::ab}, engine_, p.c),
        matmul_(dnnl::matmul::primitive_desc(dnnl::matmul::desc(a_.get_desc(), b_.get_desc(), c_.get_desc()),
                                             engine_)) {}

  void run() override {
    matmul_.execute(stream_, {{DNNL_ARG_SRC, a_}, {DNNL_ARG_WEIGHTS, b_}, {DNNL_ARG_DST, c_}});
    stream_.wait();
  }

 private:
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::memory a_, b_, c_;
  dnnl::matmul matmul_;
};

}  // namespace

std::unique_ptr<PeerGemm> onednn_gemm(const PeerProblem& p) {
  try {
    return std::make_unique<OneDnnGemm>(p);
  } catch (const dnnl::error&) {  // this CPU or this version does not do it
    return nullptr;
  }
}

std::string onednn_name() {
  const dnnl_version_t* v = dnnl_version();
  return cat("oneDNN ", v->major, ".", v->minor, ".", v->patch);
}

}  // namespace kiln
