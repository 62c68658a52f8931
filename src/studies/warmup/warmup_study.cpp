#include "studies/warmup/warmup_study.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "perf/timing/op_times.h"
#include "perf/timing/timing.h"

namespace kiln {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kPage = 4096;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

int64_t minor_faults() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

// The host's time inside ops, and the segments taken meanwhile.
class HostWatch final : public OpObserver, public AllocObserver {
 public:
  explicit HostWatch(RankContext& ctx) : ctx_(ctx) {
    ctx.add_observer(this);
    ctx.allocator().add_observer(this);
  }
  ~HostWatch() override {
    ctx_.remove_observer(this);
    ctx_.allocator().remove_observer(this);
  }
  HostWatch(const HostWatch&) = delete;
  HostWatch& operator=(const HostWatch&) = delete;

  void on_op_begin(RankContext&, const OpEvent&) override {
    if (depth_++ > 0) return;
    faults_begun_ = minor_faults();
    begun_ = Clock::now();
  }
  void on_op_end(RankContext&, const OpEvent& e) override {
    if (--depth_ > 0) return;
    const double seconds = seconds_since(begun_);
    const OpClass c = class_of(e.op);
    InOps& place = c == OpClass::gemm || c == OpClass::head ? products : others;
    place.seconds += seconds;
    place.faults += minor_faults() - faults_begun_;
  }
  void on_alloc_event(const AllocEvent& e) override {
    if (e.kind == AllocEvent::Kind::segment_alloc) segments.push_back({e.bytes, depth_ > 0});
  }

  struct Segment {
    std::size_t bytes;
    bool inside_op;
  };
  struct InOps {
    double seconds = 0;
    int64_t faults = 0;
  };
  InOps products, others;
  std::vector<Segment> segments;

 private:
  RankContext& ctx_;
  int depth_ = 0;
  Clock::time_point begun_;
  int64_t faults_begun_ = 0;
};

void touch(std::byte* memory, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += kPage)
    *reinterpret_cast<volatile std::byte*>(memory + i) = std::byte{1};
}

// Takes the same segments again, all at once as the step did, and gives them back.
void price_growth(RankContext& ctx, const std::vector<HostWatch::Segment>& segments, FirstStepFacts& f) {
  const bool host = ctx.backend().host_readable();
  std::vector<void*> taken;
  for (const HostWatch::Segment& s : segments) {
    const Clock::time_point begun = Clock::now();
    void* memory = ctx.backend().allocate(s.bytes);
    const double asked = seconds_since(begun);
    if (memory == nullptr) break;  // out of memory: the rest goes unmeasured
    taken.push_back(memory);
    f.growth += asked;
    if (s.inside_op) f.growth_inside_ops += asked;
    if (!host) continue;
    const Clock::time_point first = Clock::now();
    touch(static_cast<std::byte*>(memory), s.bytes);
    const double cold = seconds_since(first);
    const Clock::time_point again = Clock::now();
    touch(static_cast<std::byte*>(memory), s.bytes);
    f.touch += std::max(0.0, cold - seconds_since(again));
  }
  for (void* memory : taken) ctx.backend().release(memory);
}

// Of a small page: fresh memory of the C library's, touched.
double fault_price() {
  constexpr std::size_t kBytes = std::size_t{16} << 20;
  const std::unique_ptr<std::byte[]> memory(new std::byte[kBytes]);  // not cleared: untouched
  const int64_t before = minor_faults();
  const Clock::time_point begun = Clock::now();
  touch(memory.get(), kBytes);
  const double seconds = seconds_since(begun);
  return seconds / static_cast<double>(std::max<int64_t>(1, minor_faults() - before));
}

double one_step(RankContext& ctx, SyntheticStep& step) {
  const Clock::time_point begun = Clock::now();
  step.run();
  ctx.synchronize();
  return seconds_since(begun);
}

double steady_of(const std::vector<double>& steps) {
  std::vector<double> later(steps.begin() + static_cast<std::ptrdiff_t>(steps.size() / 2), steps.end());
  std::sort(later.begin(), later.end());
  return percentile(later, 0.5);
}

}  // namespace

FirstStepParts split_first_step(const FirstStepFacts& f) {
  auto above = [](double a, double b) { return std::max(0.0, a - b); };
  FirstStepParts p;
  p.excess = f.first - f.steady;
  p.allocator_growth = f.growth;
  p.clock_ramp = above(f.second, f.steady);
  const double faults = f.fault * static_cast<double>(std::max<int64_t>(0, f.faults_first - f.faults_warm));
  if (!f.gpu) {  // ops are the work itself; there is no code to bring anywhere and no library to wake
    p.page_faults = std::max(f.touch, faults);  // segments had before the step are touched in it, too
  } else {
    // What ops took longer, less the pages they touched meanwhile. A page may cost less than the price, and
    // no more is counted than there was.
    const double products = above(f.products_first, f.products_warm);
    const double others = above(above(f.others_first, f.others_warm), f.growth_inside_ops);
    const double in_products = std::min(products, f.fault * static_cast<double>(f.faults_in_products));
    const double in_others = std::min(others, f.fault * static_cast<double>(f.faults_in_others));
    const auto inside = static_cast<double>(f.faults_in_products + f.faults_in_others);
    p.page_faults = in_products + in_others + above(faults, f.fault * inside);
    p.matrix_library = products - in_products;
    p.module_load = others - in_others;
  }
  const double parts = p.module_load + p.matrix_library + p.allocator_growth + p.page_faults + p.clock_ramp;
  // While the host is late a GPU works on what it has: as much as a warm step takes can go by for nothing.
  if (f.gpu) p.hidden = std::min(f.steady, above(parts, p.excess));
  p.rest = p.excess - parts + p.hidden;
  return p;
}

namespace {

// The steps as a run makes them, the first one watched; its new segments come back.
std::vector<HostWatch::Segment> cold_steps(RankContext& ctx, const StepSpec& spec, int count,
                                           WarmupRun& run) {
  std::vector<HostWatch::Segment> segments;
  FirstStepFacts& f = run.facts;
  const Clock::time_point begun = Clock::now();
  SyntheticStep step(ctx, spec);
  ctx.synchronize();
  run.model = seconds_since(begun);
  for (int i = 0; i < count; ++i) {
    std::optional<HostWatch> watch;
    if (i == 0) watch.emplace(ctx);
    const int64_t faults = minor_faults();
    run.steps.push_back(one_step(ctx, step));
    if (!watch) continue;
    f.faults_first = minor_faults() - faults;
    f.products_first = watch->products.seconds;
    f.others_first = watch->others.seconds;
    f.faults_in_products = watch->products.faults;
    f.faults_in_others = watch->others.faults;
    segments = watch->segments;
  }
  (void)step.finish();
  run.captured = step.captured();
  run.memory = ctx.allocator().stats();
  return segments;
}

// The same step, warm by now, and op by op even where the steps above were graphs.
void warm_step(RankContext& ctx, const StepSpec& spec, FirstStepFacts& f) {
  StepSpec eager = spec;
  eager.step.graph = false;
  SyntheticStep step(ctx, eager);
  (void)one_step(ctx, step);
  HostWatch watch(ctx);
  const int64_t faults = minor_faults();
  (void)one_step(ctx, step);
  f.faults_warm = minor_faults() - faults;
  f.products_warm = watch.products.seconds;
  f.others_warm = watch.others.seconds;
  f.faults_in_products = std::max<int64_t>(0, f.faults_in_products - watch.products.faults);
  f.faults_in_others = std::max<int64_t>(0, f.faults_in_others - watch.others.faults);
}

}  // namespace

WarmupRun run_warmup(const RankOptions& rank, const StepSpec& spec, int warmups, int steps,
                     const std::function<void(RankContext&)>& prepare) {
  WarmupRun run;
  run.warmups = warmups;
  const Clock::time_point begun = Clock::now();
  RankContext ctx(rank);
  ctx.synchronize();
  run.handles = seconds_since(begun);
  if (prepare) prepare(ctx);
  FirstStepFacts& f = run.facts;
  f.gpu = ctx.device().type == DeviceType::cuda;
  const std::vector<HostWatch::Segment> segments = cold_steps(ctx, spec, warmups + steps, run);
  warm_step(ctx, spec, f);
  for (const HostWatch::Segment& s : segments) f.segment_bytes += static_cast<int64_t>(s.bytes);
  f.segments = static_cast<int64_t>(segments.size());
  ctx.allocator().release_cached();
  price_growth(ctx, segments, f);
  f.fault = fault_price();
  f.first = run.steps.front();
  f.steady = steady_of(run.steps);
  const std::size_t settled = run.captured ? 2 : 1;
  // The better of two: one that something else disturbed is no ramp.
  f.second = settled + 1 < run.steps.size() ? std::min(run.steps[settled], run.steps[settled + 1]) : f.steady;
  run.parts = split_first_step(f);
  return run;
}

}  // namespace kiln
