// The functions of include/kiln/attention.h: check, plan, then run the rows of attention's table on the
// caller's memory and stream.
#include <memory>
#include <mutex>

#include "abi/attention_plan.h"
#include "abi/callers_gpu.h"
#include "abi/status.h"
#include "base/build_info.h"

struct kiln_attention_context {
  explicit kiln_attention_context(const kiln::RankOptions& options) : ctx(options) {}

  std::mutex mutex;  // of the rank: its stream is the caller's during a call
  kiln::RankContext ctx;
};

namespace kiln::abi {
namespace {

RankOptions options_for(int device) {
  if (device < KILN_CPU || device > INT16_MAX)
    reject(cat("device is ", device, "; the index of a GPU, or KILN_CPU, ", KILN_CPU, ", is needed"));
  RankOptions options;
  options.device = device == KILN_CPU ? Device::cpu() : Device::cuda(device);
  options.alloc_mode = AllocMode::caching;  // whatever the environment says: nothing is allocated
  options.matmuls = false;
  return options;
}

// One call, from the moment its arguments are known to be right.
class Call {
 public:
  Call(kiln_attention_context& context, const CheckedProblem& problem, Pass pass,
       std::span<const Argument> tensors, void* stream)
      : ctx_(context.ctx),
        lock_(context.mutex),
        stream_(context.ctx, callers_stream(stream)),
        one_by_one_(problem.one_by_one()),
        sequences_(problem.sequences),
        query_rows_(problem.query_rows()),
        plan_(make_plan(ctx_, problem, pass, tensors)) {}

  void use_workspace(void* data, std::size_t bytes) {
    if (plan_.workspace == 0) return;
    if (data == nullptr || bytes < plan_.workspace) {
      reject(
          cat("workspace has ", data == nullptr ? 0 : bytes, " bytes; this problem takes ", plan_.workspace),
          "kiln_attention_workspace tells how many");
    }
    if (reinterpret_cast<std::uintptr_t>(data) % kWorkspaceAlignment != 0)
      reject(cat("workspace is at ", data, ", not a multiple of ", kWorkspaceAlignment, " bytes"));
    workspace_ = static_cast<std::byte*>(data);
  }

  // Calls run(launch, workspace) for each launch that has something to write.
  template <class Run>
  void for_each(Pass pass, Run run) {
    if (ctx_.device().is_meta()) return;
    for (const Launch& l : plan_.launches) {
      if (!nothing_to_do(l.p, pass)) run(l, workspace_tensor());
    }
  }

  // The kernels' lse of a launch: the caller's own, or a sequence's place in the workspace.
  Tensor lse_of(const Launch& l, const float* lse) const {
    auto* at =
        one_by_one_ ? reinterpret_cast<float*>(workspace_ + plan_.lse_offset) : const_cast<float*>(lse);
    const Shape shape{l.p.batches(), l.p.H, l.p.query_rows()};
    const auto count = static_cast<std::size_t>(shape.numel());
    return Tensor(Buffer::borrowed(at, {count * sizeof(float)}), shape, DType::f32, ctx_.device());
  }
  // Between [heads, Tq] of a sequence and its columns of the caller's [heads, all rows].
  void save_lse(const Launch& l, const Tensor& from, float* lse) {
    copy_lse(l, lse, from.data<float>(), true);
  }
  void load_lse(const Launch& l, const Tensor& to, const float* lse) {
    copy_lse(l, const_cast<float*>(lse), to.data<float>(), false);
  }

  Tensor view(const kiln_attention_view* v, const Launch& l, Side side) const {
    return tensor_of(v, l.p, side, side == Side::queries ? l.first_query : l.first_key, ctx_.device());
  }
  RankContext& ctx() { return ctx_; }
  const Sequences& sequences() const { return sequences_; }

 private:
  Tensor workspace_tensor() const {
    if (plan_.workspace == 0) return {};
    const auto bytes = static_cast<int64_t>(one_by_one_ ? plan_.lse_offset : plan_.workspace);
    return Tensor(Buffer::borrowed(workspace_, {static_cast<std::size_t>(bytes)}), {bytes}, DType::u8,
                  ctx_.device());
  }

  void copy_lse(const Launch& l, float* callers, float* ours, bool to_caller) {
    if (!one_by_one_) return;
    const auto row = static_cast<std::size_t>(l.p.Tq) * sizeof(float);
    const auto all = static_cast<std::size_t>(query_rows_) * sizeof(float);
    float* theirs = callers + l.first_query;
    ctx_.backend().copy_rows(to_caller ? theirs : ours, to_caller ? all : row, to_caller ? ours : theirs,
                             to_caller ? row : all, row, static_cast<std::size_t>(l.p.H), ctx_.compute());
  }

  CallersGpu gpu_;
  RankContext& ctx_;
  std::scoped_lock<std::mutex> lock_;
  StreamGuard stream_;
  bool one_by_one_;
  Sequences sequences_;
  int64_t query_rows_;
  Plan plan_;
  std::byte* workspace_ = nullptr;
};

kiln_attention_context& checked(kiln_attention_context* context) {
  if (context == nullptr) reject("context is NULL", "kiln_attention_create makes one");
  return *context;
}

}  // namespace
}  // namespace kiln::abi

using kiln::Pass;
using kiln::Tensor;
using kiln::abi::answer;
using kiln::abi::Argument;
using kiln::abi::Call;
using kiln::abi::Launch;
using kiln::abi::Side;
using kiln::abi::Use;

int kiln_abi_version(void) { return KILN_ABI_VERSION; }

const char* kiln_version(void) {
  static const std::string kText =
      kiln::cat(kiln::build_info().version, " (", kiln::build_info().build_id, ")");
  return kText.c_str();
}

size_t kiln_attention_problem_size(void) { return sizeof(kiln_attention_problem); }
size_t kiln_attention_view_size(void) { return sizeof(kiln_attention_view); }

const char* kiln_last_error(void) { return kiln::abi::last_error(); }

kiln_status kiln_attention_create(int device, kiln_attention_context** context) {
  return answer([&] {
    if (context == nullptr) kiln::abi::reject("context is NULL, where its address goes");
    *context = nullptr;
    const kiln::abi::CallersGpu gpu;
    *context = new kiln_attention_context(kiln::abi::options_for(device));
  });
}

void kiln_attention_destroy(kiln_attention_context* context) {
  if (context == nullptr) return;
  const kiln::abi::CallersGpu gpu;
  // A rank that ends waits for its streams. Where that fails, after a fault of the GPU or at the end of the
  // process, there is nothing left to free, and no way to report.
  if (answer([&] { context->ctx.synchronize(); }) == KILN_OK) delete context;
}

kiln_status kiln_attention_variant(kiln_attention_context* context, const kiln_attention_problem* problem,
                                   const char** name) {
  return answer([&] {
    auto& c = kiln::abi::checked(context);
    if (name == nullptr) kiln::abi::reject("name is NULL");
    const auto p = kiln::abi::checked_problem(problem, c.ctx.device());
    std::scoped_lock lock(c.mutex);
    *name = kiln::abi::choose(c.ctx, p.p, p.variant, p.allow_atomic).name;
  });
}

kiln_status kiln_attention_workspace(kiln_attention_context* context, const kiln_attention_problem* problem,
                                     size_t* forward_bytes, size_t* backward_bytes) {
  return answer([&] {
    auto& c = kiln::abi::checked(context);
    const auto p = kiln::abi::checked_problem(problem, c.ctx.device());
    std::scoped_lock lock(c.mutex);
    if (forward_bytes != nullptr) *forward_bytes = kiln::abi::workspace_bytes(c.ctx, p, Pass::forward);
    if (backward_bytes != nullptr) *backward_bytes = kiln::abi::workspace_bytes(c.ctx, p, Pass::backward);
  });
}

kiln_status kiln_attention_forward(kiln_attention_context* context, const kiln_attention_problem* problem,
                                   const kiln_attention_view* q, const kiln_attention_view* k,
                                   const kiln_attention_view* v, const kiln_attention_view* o, float* lse,
                                   void* workspace, size_t workspace_bytes, void* stream) {
  return answer([&] {
    auto& c = kiln::abi::checked(context);
    const auto p = kiln::abi::checked_problem(problem, c.ctx.device());
    const Argument arguments[] = {{"q", q, Side::queries, Use::read},
                                  {"k", k, Side::keys, Use::read},
                                  {"v", v, Side::keys, Use::read},
                                  {"o", o, Side::queries, Use::written}};
    check_views(p, arguments);
    check_lse(p, lse);
    Call call(c, p, Pass::forward, arguments, stream);
    call.use_workspace(workspace, workspace_bytes);
    call.for_each(Pass::forward, [&](const Launch& l, const Tensor& scratch) {
      const Tensor none, sums = call.lse_of(l, lse);
      l.row->forward(call.ctx(), {l.p, call.view(q, l, Side::queries), call.view(k, l, Side::keys),
                                  call.view(v, l, Side::keys), call.view(o, l, Side::queries), none, sums,
                                  scratch, call.sequences()});
      call.save_lse(l, sums, lse);
    });
  });
}

kiln_status kiln_attention_backward(kiln_attention_context* context, const kiln_attention_problem* problem,
                                    const kiln_attention_view* q, const kiln_attention_view* k,
                                    const kiln_attention_view* v, const kiln_attention_view* o,
                                    const float* lse, const kiln_attention_view* dout,
                                    const kiln_attention_view* dq, const kiln_attention_view* dk,
                                    const kiln_attention_view* dv, void* workspace, size_t workspace_bytes,
                                    void* stream) {
  return answer([&] {
    auto& c = kiln::abi::checked(context);
    const auto p = kiln::abi::checked_problem(problem, c.ctx.device());
    const Argument arguments[] = {{"q", q, Side::queries, Use::read},
                                  {"k", k, Side::keys, Use::read},
                                  {"v", v, Side::keys, Use::read},
                                  {"o", o, Side::queries, Use::read},
                                  {"dout", dout, Side::queries, Use::read},
                                  {"dq", dq, Side::queries, Use::written_if_given},
                                  {"dk", dk, Side::keys, Use::written_if_given},
                                  {"dv", dv, Side::keys, Use::written_if_given}};
    check_views(p, arguments);
    check_lse(p, lse);
    // flash_hopper writes dk and dv, the last two, by plain stores.
    Call call(c, p, Pass::backward, std::span(arguments).first(std::size(arguments) - 2), stream);
    call.use_workspace(workspace, workspace_bytes);
    if (dq == nullptr && dk == nullptr && dv == nullptr) return;
    call.for_each(Pass::backward, [&](const Launch& l, const Tensor& scratch) {
      const Tensor none, sums = call.lse_of(l, lse);
      call.load_lse(l, sums, lse);
      l.row->backward(call.ctx(),
                      {l.p, call.view(dout, l, Side::queries), call.view(q, l, Side::queries),
                       call.view(k, l, Side::keys), call.view(v, l, Side::keys), none,
                       call.view(o, l, Side::queries), sums, kiln::GradSlot{call.view(dq, l, Side::queries)},
                       kiln::GradSlot{call.view(dk, l, Side::keys)},
                       kiln::GradSlot{call.view(dv, l, Side::keys)}, scratch, call.sequences()});
    });
  });
}
