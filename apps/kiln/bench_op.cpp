#include "kiln/bench_op.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "autograd/tape.h"
#include "device/cpu/cpu_features.h"
#include "device/cpu/host_limits.h"
#include "device/gpu_info.h"
#include "op_cases/run_case.h"
#include "ops/linear/linear.h"
#include "ops/op_list.h"
#include "ops/select.h"
#include "perf/ceilings.h"

namespace kiln::cli {
namespace {

constexpr double kSlowCall = 3;  // seconds; slower naive rows are timed only when asked for by name

RankOptions options_for(const Device& device, int threads, uint64_t seed) {
  RankOptions o;
  o.device = device;
  o.threads = threads;
  o.seed = seed;
  return o;
}

// Adds up what the ops that run state as their cost.
class CostSum : public OpObserver {
 public:
  explicit CostSum(RankContext& ctx) : ctx_(ctx) { ctx.add_observer(this); }
  ~CostSum() override { ctx_.remove_observer(this); }
  CostSum(const CostSum&) = delete;
  CostSum& operator=(const CostSum&) = delete;

  void on_op_begin(RankContext&, const OpEvent& event) override {
    Cost& sum = event.pass == Pass::forward ? forward : backward;
    sum = sum + event.cost;
  }
  Cost forward, backward;

 private:
  RankContext& ctx_;
};

// The definition everything is judged against: naive, or where there is none, the op made of other ops.
std::string baseline_of(const OpListing& op) {
  for (const char* name : {"naive", "composed"}) {
    for (const VariantListing& v : op.variants) {
      if (v.device == DeviceType::cpu && v.name == name) return name;
    }
  }
  throw Error(cat("[", op.name, "] has no naive or composed variant to check against"));
}

bool has_backward(const OpBench& bench) {
  return std::any_of(bench.forms.begin(), bench.forms.end(),
                     [](const BenchForm& f) { return f.pass == Pass::backward; });
}

// FLOPs and bytes of one form, or of all that `bench` times, from the schedule alone.
Cost cost_of(const OpBench& bench, const BenchShape& shape, DType dtype, std::string_view variant,
             DeviceType device, const BenchForm* form = nullptr) {
  RankContext meta(options_for(Device::meta(device), 1, 0));
  const OpCase c = bench.make(shape);
  meta.variants().set(c.op, variant);
  CaseData nothing;
  nothing.inputs.resize(c.inputs.size());
  CostSum sum(meta);
  CaseSetup setup(meta, c, nothing, dtype, form ? form->wants : std::vector<std::string>());
  const bool backward = form ? form->pass == Pass::backward : has_backward(bench);
  const Tensor y = c.call(meta, setup.arguments());
  if (backward) meta.tape().backward(y, setup.upload_like(y, {}));
  if (form == nullptr) return sum.forward + sum.backward;
  const Cost whole = backward ? sum.backward : sum.forward;
  return {form->share * whole.flops, form->share * whole.bytes};
}

// --- memory: a shape that cannot fit is refused before it takes the machine down

void check_memory(const BenchOpRequest& request, const BenchShape& shape, DType dtype) {
  const OpCase c = request.bench.make(shape);
  RankContext meta(options_for(Device::meta(request.device.target), 1, 0));
  CaseData nothing;
  nothing.inputs.resize(c.inputs.size());
  double host = 0;  // drawn as doubles, then converted
  for (const CaseInput& in : c.inputs)
    host = std::max(host, static_cast<double>(in.shape.numel()) * static_cast<double>(8 + size_of(dtype)));
  if (request.device.type == DeviceType::cpu) {
    const CaseResult r = run_case(meta, c, nothing, dtype, {.backward = has_backward(request.bench)});
    host += static_cast<double>(r.memory.peak_total);
  }
  const double available = static_cast<double>(read_host_limits().memory_available);
  if (host > 0.9 * available) {
    throw Error(fmt::format("[{}] {} in {} needs {:.1f} GiB of host memory, {:.1f} are available", c.op,
                            shape.str(), name_of(dtype), host / 0x1p30, available / 0x1p30),
                "ask for a smaller --shape", ErrorKind::unavailable);
  }
}

// --- the check

struct Reference {
  BenchShape shape{};
  CaseData data;
  CaseResult exact, low;  // naive in fp64, naive in the dtype
  double seconds = 0;     // of the latter
};

Reference make_reference(const BenchOpRequest& request, const BenchShape& shape, DType dtype,
                         const std::string& baseline) {
  Reference r;
  r.shape = request.bench.check_shape(shape);
  const OpCase c = request.bench.make(r.shape);
  r.data = draw_case(c, dtype, request.seed);
  RankContext naive(options_for(Device::cpu(), request.threads, request.seed));
  naive.variants().set(c.op, baseline);
  const CaseOptions options{.backward = has_backward(request.bench)};
  r.exact = run_case(naive, c, r.data, DType::f64, options);
  r.seconds = time_work({[&] { r.low = run_case(naive, c, r.data, dtype, options); }},
                        {.warmups = 1, .min_samples = 1, .min_seconds = 0})
                  .min;
  return r;
}

// Fills in error and allowed of the tensor that comes closest to failing; true when none does.
bool check_variant(RankContext& ctx, const BenchOpRequest& request, const Reference& reference, DType dtype,
                   BenchRow& row) {
  const OpCase c = request.bench.make(reference.shape);
  const CaseResult r = run_case(ctx, c, reference.data, dtype, {.backward = has_backward(request.bench)});
  const std::map<DType, double> spacing = {
      {DType::f64, 0x1p-46}, {DType::f32, 0x1p-23}, {DType::bf16, 0x1p-7}, {DType::f16, 0x1p-10}};
  bool passed = true;
  double worst = -1;
  auto judge = [&](const std::string& what, const std::vector<double>& got, const std::vector<double>& low,
                   const std::vector<double>& exact) {
    const double error = relative_error(got, exact),
                 allowed = 2 * relative_error(low, exact) + spacing.at(dtype) / 4;
    if (error / allowed > worst) {
      worst = error / allowed;
      row.error = error;
      row.allowed = allowed;
    }
    if (error <= allowed) return;  // a NaN fails
    passed = false;
    row.reason += fmt::format("{}{} is off by {:.2e}, {:.2e} is allowed", row.reason.empty() ? "" : "; ",
                              what, error, allowed);
  };
  judge("y", r.y, reference.low.y, reference.exact.y);
  for (std::size_t i = 0; i < r.grads.size(); ++i) {
    if (!reference.exact.grads[i].empty())
      judge(cat("d", c.inputs[i].name), r.grads[i], reference.low.grads[i], reference.exact.grads[i]);
  }
  return passed;
}

// --- the clock

void time_form(RankContext& ctx, const OpCase& c, const CaseData& data, const BenchForm& form,
               BenchRow& row) {
  CaseSetup setup(ctx, c, data, row.dtype, form.wants);
  const bool backward = form.pass == Pass::backward;
  Tensor y, dy;
  auto forward = [&] { y = c.call(ctx, setup.arguments()); };
  auto begin = [&] {
    y = {};
    setup.begin_step();
  };
  auto gradient = [&] {  // of the output, made once its size is known
    if (dy.defined()) return;
    const OpCase unit{
        c.op, "dy", {{"dy", CaseInput::Kind::activation, {std::min<int64_t>(y.numel(), 65536)}}}, {}};
    dy = setup.upload_like(y, repeat_to(draw_repeating(unit, row.dtype, ctx.seed()).inputs[0], y.numel()));
  };
  TimedWork work;
  work.wait = [&] { ctx.synchronize(); };
  if (backward) {
    work.prepare = [&] {
      begin();
      forward();
      gradient();
    };
    work.call = [&] { ctx.tape().backward(y, dy); };
  } else {
    work.prepare = begin;
    work.call = forward;
  }
  row.timing = time_work(work, {.max_seconds = row.variant == "naive" ? 1.5 : 3.0});
  begin();  // drops what the tape holds before the arguments go
}

// --- ceilings

struct Ceilings {
  double copy = 0;
  std::map<DType, NamedRate> flops;
};

NamedRate cpu_flops(const CpuCeilings& c, DType dtype, CpuIsa isa) {
  const double rate = c.flops_for(dtype, isa).all;
  if (dtype == DType::bf16 && c.amx && rate == c.amx->all) return {"amx", rate};
  if (dtype == DType::bf16 && c.bf16_dot && rate == c.bf16_dot->all) return {"dot", rate};
  return {"fma", rate};
}

// On a GPU the best there is to compare with: a large device copy, and the library's matrix product.
Ceilings gpu_ceilings(RankContext& ctx, const std::vector<DType>& dtypes) {
  Ceilings c;
  const TimingOptions brief{.warmups = 3, .min_samples = 10, .min_seconds = 0.05};
  const std::function<void()> wait = [&] { ctx.synchronize(); };
  {
    const Tensor from = ctx.zeros({1 << 30}, DType::u8), to = ctx.zeros({1 << 30}, DType::u8);
    const auto copy = [&] {
      ctx.backend().copy_within(to.raw(), from.raw(), to.bytes().value, ctx.compute());
    };
    c.copy = 2 * static_cast<double>(to.bytes().value) / time_work({copy, {}, wait}, brief).min;
  }
  for (DType dtype : dtypes) {
    constexpr int64_t kSize = 4096;
    Param w;
    w.name = "ceiling";
    w.shape = {kSize, kSize};
    w.value = ctx.zeros(w.shape, dtype);
    const Tensor x = ctx.zeros({kSize, kSize}, dtype);
    const GradModeGuard off(ctx, GradMode::off);
    const double seconds = time_work({[&] { linear(ctx, x, w); }, {}, wait}, brief).min;
    c.flops[dtype] = {"gemm", 2.0 * kSize * kSize * kSize / seconds};
  }
  return c;
}

class CeilingWatch {
 public:
  CeilingWatch(RankContext& ctx, const std::vector<DType>& dtypes) : ctx_(ctx), dtypes_(dtypes) {
    if (on_cpu()) cpu_ = measure(0.04);
  }
  // Measures again and gives the better of the two: what else the machine did meanwhile must not flatter us.
  Ceilings finish() {
    if (!on_cpu()) return gpu_ceilings(ctx_, dtypes_);
    cpu_ = best_of(cpu_, measure(0.02));
    Ceilings c;
    c.copy = cpu_.copy.all;
    for (DType t : dtypes_) c.flops[t] = cpu_flops(cpu_, t, ctx_.traits().isa);
    return c;
  }

 private:
  bool on_cpu() const { return ctx_.device().type == DeviceType::cpu; }
  CpuCeilings measure(double seconds) {
    return measure_cpu_ceilings(ctx_.pool(), ctx_.traits().isa,
                                {.seconds_each = seconds, .one_thread = false});
  }

  RankContext& ctx_;
  std::vector<DType> dtypes_;
  CpuCeilings cpu_;
};

double cache_bytes(const Device& device) {
  if (device.type != DeviceType::cpu) return 0;
  return static_cast<double>(last_level_cache_bytes());
}

void set_bound(BenchRow& row, const Ceilings& c, double cache) {
  const NamedRate& flops = c.flops.at(row.dtype);
  const double by_bytes = row.cost.bytes / c.copy, by_flops = row.cost.flops / flops.per_second;
  const bool copy = by_bytes >= by_flops;
  row.bound = copy ? "copy" : flops.name;
  row.ceiling = copy ? c.copy : flops.per_second;
  row.achieved = copy ? row.bytes_per_second() : row.flops_per_second();
  row.ratio = row.achieved / row.ceiling;
  row.in_cache = row.cost.bytes < cache;
}

void set_speedups(std::vector<BenchRow>& rows, const std::string& baseline) {
  for (BenchRow& row : rows) {
    if (row.status != BenchRow::Status::timed) continue;
    for (const BenchRow& naive : rows) {
      if (naive.variant == baseline && naive.status == row.status && naive.dtype == row.dtype &&
          naive.shape == row.shape && naive.form == row.form) {
        row.speedup = naive.timing.p50 / row.timing.p50;
      }
    }
  }
}

std::string device_name(const Device& device) {
  if (device.type == DeviceType::cpu) return cpu_model();
  std::string why;
  for (const GpuInfo& gpu : list_gpus(&why)) {
    if (gpu.index == device.index) return gpu.name;
  }
  return device.str();
}

// How long naive would take at the full shape, from what it took in the check.
double baseline_seconds(const BenchOpRequest& request, const Reference& reference, const BenchShape& shape,
                        DType dtype, const std::string& baseline) {
  const Cost full = cost_of(request.bench, shape, dtype, baseline, DeviceType::cpu),
             small = cost_of(request.bench, reference.shape, dtype, baseline, DeviceType::cpu);
  return reference.seconds *
         std::max(full.flops / std::max(1.0, small.flops), full.bytes / std::max(1.0, small.bytes));
}

}  // namespace

bool BenchReport::any_wrong() const {
  return std::any_of(rows.begin(), rows.end(),
                     [](const BenchRow& r) { return r.status == BenchRow::Status::wrong; });
}

bool BenchReport::any_timed() const {
  return std::any_of(rows.begin(), rows.end(),
                     [](const BenchRow& r) { return r.status == BenchRow::Status::timed; });
}

BenchReport bench_op(const BenchOpRequest& request, const std::function<void(const std::string&)>& progress) {
  const std::string& op = request.bench.op;
  if (request.device.is_meta()) {
    throw Error("meta runs no kernels, so there is nothing to time", "use --device cpu or cuda",
                ErrorKind::usage);
  }
  const std::vector<OpListing> ops = list_ops();
  const OpListing& listing = find_op(ops, op);
  const std::string baseline = baseline_of(listing);
  std::vector<std::string> names;
  names.reserve(listing.variants.size());
  for (const VariantListing& v : listing.variants) names.push_back(v.name);
  for (const std::string& wanted : request.variants) {
    if (std::find(names.begin(), names.end(), wanted) == names.end()) throw_no_variant(op, wanted, names, {});
  }
  for (DType dtype : request.dtypes) {
    for (const BenchShape& shape : request.shapes) check_memory(request, shape, dtype);
  }

  RankContext ctx(options_for(request.device, request.threads, request.seed));
  BenchReport report;
  report.op = op;
  report.device = request.device.str();
  report.device_name = device_name(request.device);
  report.threads = ctx.pool().threads();
  report.isa = name_of(ctx.traits().isa);
  progress("measuring ceilings");
  CeilingWatch watch(ctx, request.dtypes);

  auto asked_for = [&](const std::string& name) {
    return request.variants.empty() ||
           std::find(request.variants.begin(), request.variants.end(), name) != request.variants.end();
  };
  for (DType dtype : request.dtypes) {
    for (const BenchShape& shape : request.shapes) {
      progress(cat(op, " ", shape.str(), " ", name_of(dtype), ": ", baseline, ", to check against"));
      const Reference reference = make_reference(request, shape, dtype, baseline);
      const OpCase c = request.bench.make(shape);
      const CaseData data = draw_repeating(c, dtype, request.seed);
      for (const VariantListing& v : listing.variants) {
        if (!asked_for(v.name)) continue;
        progress(cat(op, " ", shape.str(), " ", name_of(dtype), ": ", v.name));
        BenchRow row;
        row.variant = v.name;
        row.device = name_of(v.device);
        row.dtype = dtype;
        row.shape = shape;
        row.checked_at = reference.shape;
        auto skip = [&](std::string why) {
          row.status = BenchRow::Status::skipped;
          row.reason = std::move(why);
          report.rows.push_back(row);
        };
        if (v.device != request.device.target) {
          skip(cat("runs on ", name_of(v.device), ", not on ", name_of(request.device.target)));
          continue;
        }
        if (v.name == baseline && v.device == DeviceType::cpu && request.variants.empty()) {
          const double seconds = baseline_seconds(request, reference, shape, dtype, baseline);
          if (seconds > kSlowCall) {
            skip(fmt::format("one call would take about {:.0f} s; --variant {} times it", seconds, baseline));
            continue;
          }
        }
        ctx.variants().set(op, v.name);
        try {
          if (!check_variant(ctx, request, reference, dtype, row)) {
            row.status = BenchRow::Status::wrong;
            report.rows.push_back(row);
            continue;
          }
          for (const BenchForm& form : request.forms) {
            row.form = form.name;
            row.cost = cost_of(request.bench, shape, dtype, v.name, request.device.target, &form);
            time_form(ctx, c, data, form, row);
            report.rows.push_back(row);
          }
        } catch (const Error& error) {  // this row cannot run this shape, or there is no room: a result too
          ctx.tape().reset();
          skip(error.what());
        }
      }
    }
  }
  progress("measuring ceilings again");
  const Ceilings ceilings = watch.finish();
  report.copy = ceilings.copy;
  for (DType t : request.dtypes)
    report.flops.push_back(
        {cat(name_of(t), " ", ceilings.flops.at(t).name), ceilings.flops.at(t).per_second});
  for (BenchRow& row : report.rows) {
    if (row.status == BenchRow::Status::timed) set_bound(row, ceilings, cache_bytes(request.device));
  }
  set_speedups(report.rows, baseline);
  progress("");
  return report;
}

}  // namespace kiln::cli
