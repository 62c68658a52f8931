// Everything one rank owns: device, streams, allocator, threads, tape, watchers. There is no global mutable
// state in kiln, so several ranks can be threads of one process, each with its own context.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "autograd/op_observer.h"
#include "base/thread_pool.h"
#include "base/variant_choice.h"
#include "device/allocator.h"
#include "device/backend.h"
#include "tensor/tensor.h"
#include "tune/attention_choice.h"

namespace kiln {

class RegionCompiler;
class Tape;

// What a rank is about, for those who watch it from outside. Backward and the second run of a recomputed span
// say so themselves; forward and update are named by the code that runs the step.
enum class Phase : uint8_t { setup, forward, recompute, backward, update };
inline constexpr int kPhaseCount = 5;

constexpr std::string_view name_of(Phase p) {
  constexpr std::string_view kNames[kPhaseCount] = {"setup", "forward", "recompute", "backward", "update"};
  return kNames[static_cast<int>(p)];
}

// The op call that runs, from its check to its record: constant strings, empty between calls.
struct RunningOp {
  const char* op = "";
  const char* variant = "";
};

struct RankOptions {
  Device device = Device::cpu();
  int rank = 0;
  int world = 1;
  int threads = 0;  // 0: as many as the process may use
  uint64_t seed = 0;
  Bytes memory_cap{SIZE_MAX};
  std::optional<AllocMode> alloc_mode;  // default: KILN_ALLOC
  std::optional<CpuIsa> cpu_isa;        // default: KILN_CPU_ISA
  int meta_compute_capability = 90;     // of the GPU that meta:cuda imitates: which variants it could run
  bool matmuls = true;  // false: no GEMM library calls, so neither the library nor its scratch
  VariantChoice variants;
  AttentionChoices attention_choices;  // of tiles, by measurement; without one the op's tables decide
  // A backend of one's own for `device`, to watch or to disturb what a rank asks of it; default:
  // make_backend. Called on the rank's thread.
  std::function<std::unique_ptr<Backend>()> backend;
};

class RankContext {
 public:
  explicit RankContext(const RankOptions& options = {});
  ~RankContext();
  RankContext(const RankContext&) = delete;
  RankContext& operator=(const RankContext&) = delete;

  const Device& device() const { return options_.device; }
  const DeviceTraits& traits() const { return traits_; }
  int rank() const { return options_.rank; }
  int world() const { return options_.world; }
  uint64_t seed() const { return options_.seed; }
  Backend& backend() { return *backend_; }
  Allocator& allocator() { return *allocator_; }
  ThreadPool& pool() { return *pool_; }
  Stream compute() const { return compute_; }
  Tape& tape() { return *tape_; }
  RegionCompiler& regions();  // autograd/region.h; made at its first use
  VariantChoice& variants() { return options_.variants; }
  AttentionChoices& attention_choices() { return options_.attention_choices; }

  // `where` is the line that asks: what memory is attributed to.
  Tensor empty(const Shape& shape, DType dtype, Tag tag = Tag::activation,
               std::source_location where = std::source_location::current());
  Tensor zeros(const Shape& shape, DType dtype, Tag tag = Tag::activation,
               std::source_location where = std::source_location::current());
  Tensor clone(const Tensor& contiguous, Tag tag = Tag::activation,
               std::source_location where = std::source_location::current());
  // Both sides finished when these return; for set-up, tests and results, never inside a step.
  void upload(const Tensor& dst, const void* host);
  void download(void* host, const Tensor& contiguous_src);
  void synchronize() { backend_->synchronize(compute_); }

  // The workspace of GEMM libraries: one fixed piece per stream, because the algorithm a library
  // picks may depend on how much there is. Empty on the CPU.
  const Tensor& gemm_workspace() const { return gemm_workspace_; }

  const std::vector<OpObserver*>& observers() const { return observers_; }
  void add_observer(OpObserver* o) { observers_.push_back(o); }
  void remove_observer(OpObserver* o) { std::erase(observers_, o); }

  std::string_view scope() const { return *scope_; }
  Phase phase() const { return phase_; }
  const RunningOp& running_op() const { return running_op_; }

 private:
  friend class ScopeGuard;
  friend class StreamGuard;
  friend class PhaseGuard;
  friend class RunningOpGuard;

  RankOptions options_;
  DeviceTraits traits_;
  // Destroyed in reverse order: the tape and workspace drop their buffers before the allocator goes, and the
  // allocator gives its memory back before the backend goes.
  std::unique_ptr<Backend> backend_;
  Stream compute_;
  std::unique_ptr<Allocator> allocator_;
  std::unique_ptr<ThreadPool> pool_;
  Tensor gemm_workspace_;
  std::unique_ptr<RegionCompiler> regions_;  // before the tape, whose nodes refer to it
  std::unique_ptr<Tape> tape_;
  std::vector<OpObserver*> observers_;
  std::set<std::string> scope_names_;  // interned: nodes keep pointers to them
  const std::string* scope_;
  Phase phase_ = Phase::setup;
  RunningOp running_op_;
};

// Names the part of the model that runs while it lives: ScopeGuard g(ctx, "attention").
class ScopeGuard {
 public:
  ScopeGuard(RankContext& ctx, std::string_view name);
  // Re-enters a scope by its full path: what backward does for the node it runs.
  struct FullPath {
    const std::string* path;
  };
  ScopeGuard(RankContext& ctx, FullPath path);
  ~ScopeGuard() { ctx_.scope_ = previous_; }
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;

  static const std::string* current(RankContext& ctx) { return ctx.scope_; }

 private:
  RankContext& ctx_;
  const std::string* previous_;
};

// Names what the rank is about while it lives.
class PhaseGuard {
 public:
  PhaseGuard(RankContext& ctx, Phase phase) : ctx_(ctx), previous_(ctx.phase_) { ctx.phase_ = phase; }
  ~PhaseGuard() { ctx_.phase_ = previous_; }
  PhaseGuard(const PhaseGuard&) = delete;
  PhaseGuard& operator=(const PhaseGuard&) = delete;

 private:
  RankContext& ctx_;
  Phase previous_;
};

// Names the op call that runs while it lives.
class RunningOpGuard {
 public:
  RunningOpGuard(RankContext& ctx, RunningOp op) : ctx_(ctx), previous_(ctx.running_op_) {
    ctx.running_op_ = op;
  }
  ~RunningOpGuard() { ctx_.running_op_ = previous_; }
  RunningOpGuard(const RunningOpGuard&) = delete;
  RunningOpGuard& operator=(const RunningOpGuard&) = delete;

 private:
  RankContext& ctx_;
  RunningOp previous_;
};

// While it lives, the rank's ops run on a stream owned by others. The allocator stays on the rank's
// own stream, so nothing may be allocated meanwhile.
class StreamGuard {
 public:
  StreamGuard(RankContext& ctx, Stream stream) : ctx_(ctx), own_(ctx.compute_) { ctx.compute_ = stream; }
  ~StreamGuard() { ctx_.compute_ = own_; }
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

 private:
  RankContext& ctx_;
  Stream own_;
};

}  // namespace kiln
