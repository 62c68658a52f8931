#include "autograd/rank_context.h"

#include "autograd/region.h"
#include "autograd/tape.h"

namespace kiln {

namespace {
constexpr int64_t kGemmWorkspace = int64_t{32} << 20;  // cuBLASLt's own recommendation for Hopper
}

RankContext::RankContext(const RankOptions& options) : options_(options) {
  backend_ = options_.backend ? options_.backend()
                              : make_backend(options_.device, options_.cpu_isa,
                                             options_.meta_compute_capability, options_.matmuls);
  traits_ = backend_->traits();
  compute_ = backend_->make_stream();
  const AllocMode mode = options_.alloc_mode ? *options_.alloc_mode : alloc_mode_from_environment();
  allocator_ = std::make_unique<Allocator>(*backend_, compute_, mode, options_.memory_cap);
  const bool cpu = options_.device.type == DeviceType::cpu;  // only the CPU computes on the host's threads
  const int threads = options_.threads > 0 ? options_.threads : ThreadPool::available_threads();
  pool_ = std::make_unique<ThreadPool>(cpu ? threads : 1);
  scope_ = &*scope_names_.emplace("").first;
  if (options_.device.target == DeviceType::cuda && options_.matmuls) {
    gemm_workspace_ = empty({kGemmWorkspace}, DType::u8, Tag::workspace);
  }
  tape_ = std::make_unique<Tape>(*this);
}

RankContext::~RankContext() {
  backend_->synchronize(compute_);
  tape_.reset();
  regions_.reset();
  gemm_workspace_ = {};
  allocator_.reset();
  backend_->destroy(compute_);
}

RegionCompiler& RankContext::regions() {
  if (regions_ == nullptr) regions_ = make_region_compiler();
  return *regions_;
}

Tensor RankContext::empty(const Shape& shape, DType dtype, Tag tag, std::source_location where) {
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(static_cast<std::size_t>(shape.numel()), size_of(dtype), &bytes)) {
    throw Error(cat("a ", shape.str(), " ", name_of(dtype), " tensor has more bytes than can be counted"));
  }
  return Tensor(allocator_->allocate({bytes}, tag, where), shape, dtype, options_.device);
}

Tensor RankContext::zeros(const Shape& shape, DType dtype, Tag tag, std::source_location where) {
  Tensor t = empty(shape, dtype, tag, where);
  backend_->zero(t.raw(), t.bytes().value, compute_);
  return t;
}

Tensor RankContext::clone(const Tensor& src, Tag tag, std::source_location where) {
  if (!src.contiguous()) throw Error(cat("cannot clone a strided ", src.shape().str(), " view"));
  Tensor t = empty(src.shape(), src.dtype(), tag, where);
  backend_->copy_within(t.raw(), src.raw(), t.bytes().value, compute_);
  return t;
}

void RankContext::upload(const Tensor& dst, const void* host) {
  if (!dst.contiguous()) throw Error("upload needs a contiguous tensor");
  backend_->copy_to_device(dst.raw(), host, dst.bytes().value, compute_);
  backend_->synchronize(compute_);
}

void RankContext::download(void* host, const Tensor& src) {
  if (!src.contiguous()) throw Error("download needs a contiguous tensor");
  backend_->copy_to_host(host, src.raw(), src.bytes().value, compute_);
  backend_->synchronize(compute_);
}

ScopeGuard::ScopeGuard(RankContext& ctx, std::string_view name) : ctx_(ctx), previous_(ctx.scope_) {
  std::string path = previous_->empty() ? std::string(name) : cat(*previous_, ".", name);
  ctx.scope_ = &*ctx.scope_names_.emplace(std::move(path)).first;
}

ScopeGuard::ScopeGuard(RankContext& ctx, FullPath path) : ctx_(ctx), previous_(ctx.scope_) {
  ctx.scope_ = path.path;
}

}  // namespace kiln
