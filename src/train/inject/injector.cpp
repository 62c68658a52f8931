#include "train/inject/injector.h"

#include <signal.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>

#include "autograd/rank_context.h"
#include "base/error.h"
#include "ops/cpu_rows.h"

namespace kiln {
namespace {

// A short sleep takes longer than it was asked for: what is owed is slept in pieces of this.
constexpr auto kPiece = std::chrono::milliseconds(1);

bool is_loss(const OpEvent& e) {
  return e.op.find("cross_entropy") != std::string_view::npos && e.pass == Pass::forward &&
         !e.outputs.empty() && e.outputs[0].tensor.defined() && e.outputs[0].tensor.numel() == 1;
}

// The first float output with anything in it.
const Tensor* float_output(const OpEvent& e) {
  for (const NamedTensor& out : e.outputs) {
    if (out.tensor.defined() && is_float(out.tensor.dtype()) && out.tensor.numel() > 0) return &out.tensor;
  }
  return nullptr;
}

bool op_is_at(NanSite site, const OpEvent& e, Phase phase) {
  if (site == NanSite::loss) return is_loss(e) && phase == Phase::forward;
  const bool in_block = e.scope.find("layers.") != std::string_view::npos;
  if (site == NanSite::activation) return in_block && phase == Phase::forward && e.pass == Pass::forward;
  return site == NanSite::gradient && in_block && e.pass == Pass::backward;
}

}  // namespace

Injector::Injector(const std::vector<Injection>& all, RankContext& ctx) : ctx_(ctx) {
  for (const Injection& i : all) {
    if (i.rank == ctx.rank()) faults_.push_back({i});
  }
  if (!faults_.empty()) ctx.add_observer(this);
}

Injector::~Injector() { ctx_.remove_observer(this); }

template <class Do>
void Injector::for_each(FaultKind kind, Do what_to_do) {
  for (Fault& f : faults_) {
    if (f.what.kind == kind) what_to_do(f);
  }
}

// A process that is killed or stopped is so with all its threads: ranks that are threads go together.
void Injector::end_rank(Fault& fault) {
  if (fault.happened) return;
  fault.happened = true;
  if (fault.what.kind == FaultKind::kill) {
    (void)::raise(SIGKILL);
  } else if (fault.what.seconds > 0) {
    std::this_thread::sleep_for(std::chrono::duration<double>(fault.what.seconds));
  } else {
    (void)::raise(SIGSTOP);
  }
}

// A fault has one point, so the thread of a save and that of training never touch the same one.
void Injector::reach(FaultPoint point, int64_t step) {
  const auto here = [&](Fault& f) {
    const bool now = f.what.step == 0 || f.what.step == step;
    if (f.what.point == point && now) end_rank(f);
  };
  for_each(FaultKind::kill, here);
  for_each(FaultKind::stall, here);
}

void Injector::at(FaultPoint point) { reach(point, step_); }

void Injector::before_step(int64_t step) {
  step_ = step;
  in_step_ = true;
  planted_ = bucket_planted_ = false;
  last_phase_ = Phase::setup;
  depth_ = 0;
  const auto now = [&](Fault& f) {
    if (f.what.step != step) return;
    if (f.what.kind == FaultKind::flip || f.what.site == NanSite::weight) damage_weight(f);
  };
  for_each(FaultKind::flip, now);
  for_each(FaultKind::nan, now);
  for_each(FaultKind::oom, [&](Fault& f) {
    if (f.what.step == step) ctx_.allocator().fail_at(f.what.call);
  });
}

void Injector::after_step(int64_t) {
  in_step_ = false;
  ctx_.allocator().fail_at(0);  // of a step with fewer allocations
}

void Injector::on_op_begin(RankContext& ctx, const OpEvent&) {
  if (depth_++ == 0) op_begin_ = Clock::now();
  if (!in_step_) return;
  const Phase phase = ctx.phase();
  if (phase == Phase::forward && last_phase_ != Phase::forward)
    planted_ = bucket_planted_ = false;  // a replay, say
  last_phase_ = phase;
  if (phase == Phase::forward) reach(FaultPoint::forward, step_);
  if (phase == Phase::backward) reach(FaultPoint::backward, step_);
  if (phase == Phase::update) reach(FaultPoint::update, step_);
}

void Injector::on_op_end(RankContext& ctx, const OpEvent& event) {
  if (--depth_ > 0 || !in_step_) return;
  for_each(FaultKind::nan, [&](Fault& f) {
    if (f.what.step != step_ || planted_ || !op_is_at(f.what.site, event, ctx.phase())) return;
    if (!f.what.tensor.empty() && event.scope.find(f.what.tensor) == std::string_view::npos) return;
    const Tensor* const out = float_output(event);
    if (out == nullptr) return;
    plant(f, *out, ctx.compute());
    planted_ = true;
  });
  for_each(FaultKind::slow, [&](Fault& f) {
    if (step_ < f.what.step || (f.what.until != 0 && step_ > f.what.until)) return;
    f.happened = true;
    owed_ += std::chrono::duration_cast<Clock::duration>((f.what.factor - 1) * (Clock::now() - op_begin_));
    if (owed_ < kPiece) return;
    const auto begin = Clock::now();
    std::this_thread::sleep_for(owed_);
    owed_ -= Clock::now() - begin;
  });
}

// Not the fp64 scalars of a step, which are summed too.
bool Injector::reduces_gradients(const CommCall& call) const {
  const bool sum = call.what == Collective::all_reduce || call.what == Collective::reduce_scatter ||
                   call.what == Collective::reduce;
  return in_step_ && sum && call.dtype != DType::f64;
}

void Injector::on_call_begin(const CommCall& call) {
  if (reduces_gradients(call)) reach(FaultPoint::reduce, step_);
}

void Injector::on_call_end(const CommCall& call, Stream stream) {
  if (!reduces_gradients(call) || call.out == nullptr) return;
  for_each(FaultKind::nan, [&](Fault& f) {
    if (f.what.step != step_ || f.what.site != NanSite::bucket || bucket_planted_) return;
    if (call.subject.find(f.what.tensor) == std::string::npos) return;
    with_float(call.dtype, [&](auto zero) {
      using T = decltype(zero);
      const double value = f.what.infinite ? std::numeric_limits<double>::infinity()
                                           : std::numeric_limits<double>::quiet_NaN();
      const T bad = static_cast<T>(static_cast<Accum<T>>(value));
      ctx_.backend().copy_to_device(call.out, &bad, sizeof(T), stream);
      ctx_.backend().synchronize(stream);
    });
    f.happened = bucket_planted_ = true;
  });
}

void Injector::plant(Fault& fault, const Tensor& t, Stream stream) {
  const int64_t columns = t.shape().last(), at = std::min(fault.what.element, t.numel() - 1);
  with_float(t.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const double value = fault.what.infinite ? std::numeric_limits<double>::infinity()
                                             : std::numeric_limits<double>::quiet_NaN();
    const T bad = static_cast<T>(static_cast<Accum<T>>(value));
    const int64_t element = at / columns * t.row_stride() + at % columns;
    ctx_.backend().copy_to_device(t.raw() + element * static_cast<int64_t>(sizeof(T)), &bad, sizeof(T),
                                  stream);
    ctx_.backend().synchronize(stream);
  });
  fault.happened = true;
}

void Injector::damage_weight(Fault& fault) {
  if (params_ == nullptr || fault.happened) return;  // it stays damaged
  for (const Param& p : params_->params()) {
    const std::string_view wanted =
        fault.what.tensor.empty() ? "layers." : std::string_view(fault.what.tensor);
    if (p.name.find(wanted) == std::string::npos) continue;
    const Tensor value = params_->local_value(p);
    if (fault.what.kind == FaultKind::nan) return plant(fault, value, ctx_.compute());
    const auto size = static_cast<int64_t>(size_of(value.dtype()));
    const int64_t element = std::min(fault.what.element, value.numel() - 1);
    const int64_t byte = element * size + std::min<int64_t>(fault.what.bit / 8, size - 1);
    unsigned char bits = 0;
    ctx_.backend().copy_to_host(&bits, value.raw() + byte, 1, ctx_.compute());
    ctx_.synchronize();
    bits = static_cast<unsigned char>(bits ^ (1U << (fault.what.bit % 8)));
    ctx_.backend().copy_to_device(value.raw() + byte, &bits, 1, ctx_.compute());
    ctx_.synchronize();
    fault.happened = true;
    return;
  }
}

// Of a save: its writes and fsyncs are counted, its renames are told apart by what they name.
int Injector::before(FileOp op, std::string_view path) {
  if (op == FileOp::write && path.ends_with("/latest")) reach(FaultPoint::save_retire, saved_step_);
  if (op == FileOp::write) reach(FaultPoint::save, saved_step_);
  if (op == FileOp::sync) reach(FaultPoint::save_sync, saved_step_);
  if (op == FileOp::rename && path.ends_with("/manifest.json")) reach(FaultPoint::save_manifest, saved_step_);
  if (op == FileOp::rename && path.find("/step-") != std::string_view::npos &&
      path.find(".tmp.") == std::string_view::npos)
    reach(FaultPoint::save_publish, saved_step_);
  int why = 0;
  const auto count = [&](FileOp counted, int fails_with) {
    return [&why, this, op, counted, fails_with](Fault& f) {
      if (op != counted || f.what.step != saved_step_ || ++f.calls != f.what.call) return;
      f.happened = true;
      why = fails_with;
    };
  };
  for_each(FaultKind::enospc, count(FileOp::write, ENOSPC));
  for_each(FaultKind::eio, count(FileOp::sync, EIO));
  return why;
}

std::vector<std::string> Injector::not_happened() const {
  std::vector<std::string> left;
  for (const Fault& f : faults_) {
    if (!f.happened) left.push_back(f.what.text);
  }
  return left;
}

}  // namespace kiln
