#include "ops/attention/refusals.h"

#include <algorithm>

#include "base/build_info.h"
#include "device/gpu_code.h"
#include "ops/attention/flash/flash_table.h"
#include "ops/attention/gpu_shared_memory.h"
#include "ops/attention/tiled/tiled_table.h"
#include "ops/cpu_fused.h"

namespace kiln {
namespace {

// Kernels count rows in 32 bits, in whole tiles.
std::string too_many_rows(const AttentionProblem& p) {
  constexpr int64_t kMostRows = INT32_MAX - 1023;
  const int64_t rows = std::max({p.Tq, p.Tk, p.query_rows(), p.key_rows()});
  return rows <= kMostRows ? std::string() : cat("takes up to ", kMostRows, " rows; these are ", rows);
}

// The newest code of this build that the GPU would run. A build without CUDA answers, on meta, for the usual
// one.
int code_for(const DeviceTraits& traits) {
  const char* archs = build_info().cuda_archs;
  const int cc = traits.compute_capability;
  return *archs == '\0' ? cc + 1 : newest_code_for(archs, cc / 10, cc % 10);
}

std::string too_little_shared(const AttentionProblem& p, const DeviceTraits& traits, std::size_t bytes) {
  const int kib = shared_kib(traits.compute_capability);
  if (bytes <= static_cast<std::size_t>(kib) * 1024) return {};
  return cat("takes ", (bytes + 1023) / 1024, " KiB of shared memory for heads of ", p.D,
             "; a block of this GPU has ", kib);
}

// Of the kernels made of plain multiply-adds, which copy by cp.async.
std::string cuda_tiled_unsupported(const AttentionProblem& p, const DeviceTraits& traits, int widest,
                                   std::size_t bytes) {
  if (traits.compute_capability < 80) return "needs compute capability 8.0";
  if (code_for(traits) < 80) return "needs a build for sm_80 or newer";
  if (p.D > widest) return cat("takes heads up to ", widest, " wide; these are ", p.D);
  if (auto why = too_little_shared(p, traits, bytes); !why.empty()) return why;
  if (!(p.scale > 0)) return cat("takes a positive scale; this is ", p.scale);
  return too_many_rows(p);
}

}  // namespace

std::string needs_equal_lengths(const AttentionProblem& p, const DeviceTraits& /*traits*/) {
  return p.varlen ? "takes sequences of one length, not offsets on the device" : std::string();
}

std::string cpu_flash_unsupported(const AttentionProblem& p, const DeviceTraits& traits) {
  if (auto why = needs_equal_lengths(p, traits); !why.empty()) return why;
  return needs_fp32_or_narrower(p, traits);
}

std::string cpu_small_m_unsupported(const AttentionProblem& p, const DeviceTraits& traits) {
  if (auto why = needs_equal_lengths(p, traits); !why.empty()) return why;
  return attention_cpu_small_m_unsupported(p, traits);
}

std::string cuda_flash_unsupported(const AttentionProblem& p, const DeviceTraits& traits) {
  if (p.dtype != DType::bf16 && p.dtype != DType::f16)
    return cat("runs on the tensor cores in bf16 and fp16, not in ", name_of(p.dtype));
  if (traits.compute_capability < 80) return "needs compute capability 8.0";
  if (code_for(traits) < 80) return "needs a build for sm_80 or newer";
  if (p.D > flash::kWidestHead)
    return cat("takes heads up to ", flash::kWidestHead, " wide; these are ", p.D);
  if (auto why = too_little_shared(p, traits, flash::flash_bytes(flash::flash_tiles(p.D))); !why.empty())
    return why;
  if (!(p.scale > 0)) return cat("takes a positive scale; this is ", p.scale);
  return too_many_rows(p);
}

std::string cuda_flash_fp32_unsupported(const AttentionProblem& p, const DeviceTraits& traits) {
  if (p.dtype != DType::f32) return cat("computes in fp32 what is fp32, not ", name_of(p.dtype));
  return cuda_tiled_unsupported(p, traits, 256, tiled::fp32_bytes(tiled::tile_width(p.D)));
}

std::string cuda_flash_tf32_unsupported(const AttentionProblem& p, const DeviceTraits& traits) {
  if (p.dtype != DType::f32) return cat("rounds fp32 to TF32; these are ", name_of(p.dtype));
  return cuda_tiled_unsupported(p, traits, 128, tiled::tf32_bytes(p.D <= 64 ? 64 : 128));
}

std::string cuda_tiled_step_unsupported(const AttentionProblem& p, const DeviceTraits& traits) {
  if (auto why = needs_equal_lengths(p, traits); !why.empty()) return why;
  if (p.dtype != DType::bf16) return cat("is a ladder step in bf16; these are ", name_of(p.dtype));
  return cuda_tiled_unsupported(p, traits, 128, tiled::step_bytes(p.D <= 64 ? 64 : 128));
}

std::string cuda_hopper_unsupported(const AttentionProblem& p, const DeviceTraits& traits) {
  if (traits.compute_capability != 90) return "is made of Hopper's instructions, compute capability 9.0";
  if (code_for(traits) != 91) return "needs a build for sm_90a";
  if (p.D > 128) return cat("takes heads up to 128 wide; these are ", p.D);
  if (p.D % 8 != 0) return cat("takes heads whose width is a multiple of 8; these are ", p.D);
  if (auto why = cuda_flash_unsupported(p, traits); !why.empty()) return why;
  if (p.B == 0 || p.Tq == 0 || p.Tk == 0 || p.query_rows() == 0 || p.key_rows() == 0)
    return cat("takes at least one query and one key; these are ", p.query_rows(), " and ", p.key_rows());
  if (!p.tma)
    return "reads by TMA, which takes tensors whose rows and batches begin at multiples of 16 bytes; one of "
           "these has some that do not";
  return {};
}

}  // namespace kiln
