#include "studies/op/op.h"

#include <fmt/format.h>

#include <algorithm>

#include "autograd/tape.h"
#include "base/on_exit.h"
#include "device/cpu/host_limits.h"
#include "device/out_of_memory.h"
#include "ops/renamed.h"
#include "ops/select.h"
#include "perf/model/cost_sum.h"
#include "studies/ceilings.h"
#include "studies/op/pass_clock.h"
#include "studies/place.h"
#include "studies/variant_check.h"

namespace kiln {
namespace {

constexpr double kSlowCall = 3;  // seconds; slower naive rows are timed only when requested by name

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
  const CaseOutputs y = c.call(meta, setup.arguments());
  if (backward) setup.backward(y, setup.upload_gradients(y, {}));
  if (form == nullptr) return sum.forward + sum.backward;
  const Cost whole = backward ? sum.backward : sum.forward;
  return {form->share * whole.flops, form->share * whole.bytes};
}

// --- memory: a shape that cannot fit is refused before it takes the machine down

// Of the host, by one variant; empty: the one a run takes.
double bytes_needed(const BenchOpRequest& request, const OpCase& c, DType dtype, std::string_view variant,
                    double available) {
  double host = 0;  // drawn as doubles, then converted
  for (const CaseInput& in : c.inputs)
    host = std::max(host, static_cast<double>(in.shape.numel()) * static_cast<double>(8 + size_of(dtype)));
  if (request.device.type == DeviceType::cpu && host < available) {
    RankContext meta(options_for(Device::meta(request.device.target), 1, 0));
    if (!variant.empty()) meta.variants().set(c.op, variant);
    CaseData nothing;
    nothing.inputs.resize(c.inputs.size());
    const bool backward = has_backward(request.bench);
    const CaseResult r = run_case(meta, c, nothing, dtype, {.backward = backward});
    host += static_cast<double>(r.memory.peak_total);
    if (backward) {  // the gradients of the outputs are kept for the next sample
      const CaseSetup setup(meta, c, nothing, dtype);
      const GradModeGuard off(meta, GradMode::off);
      host +=
          static_cast<double>(c.call(meta, setup.arguments()).numel()) * static_cast<double>(size_of(dtype));
    }
  }
  return host;
}

// Why it has no place in memory; empty: it has.
std::string why_no_room(const BenchOpRequest& request, const BenchShape& shape, DType dtype,
                        std::string_view variant) {
  const OpCase c = request.bench.make(shape);
  const double available = static_cast<double>(read_host_limits().memory_available);
  double host = 0;
  try {
    host = bytes_needed(request, c, dtype, variant, available);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::failed) throw;  // no variant takes this shape
    return fmt::format("[{}] {} in {}: {}", c.op, shape.str(), name_of(dtype),
                       error.what());  // more than can be counted
  }
  if (host <= 0.9 * available) return {};
  return fmt::format("[{}] {} in {} needs {:.1f} GiB of host memory, {:.1f} are available", c.op, shape.str(),
                     name_of(dtype), host / 0x1p30, available / 0x1p30);
}

// A shape or a variant that does not fit in memory, or that is not taken, is a row like the others. Without a
// variant: the one a run takes.
std::optional<BenchRow> row_that_cannot_run(const BenchOpRequest& request, const BenchShape& shape,
                                            DType dtype, std::string_view variant = {}) {
  BenchRow row;
  row.variant = variant.empty() ? "auto" : std::string(variant);
  row.device = name_of(request.device.target);
  row.dtype = dtype;
  row.shape = shape;
  try {
    std::string why = why_no_room(request, shape, dtype, variant);
    if (why.empty()) return std::nullopt;
    row.set(RowStatus::oom, std::move(why));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::unavailable) throw;
    row.set(RowStatus::unsupported, error.what());
  }
  return row;
}

// What each variant on this device states for a form: the least of them gives the roofline.
std::vector<Cost> costs_of_all(const BenchOpRequest& request, const OpListing& listing,
                               const BenchShape& shape, DType dtype, const BenchForm& form) {
  std::vector<Cost> costs;
  for (const VariantListing& v : listing.variants) {
    if (v.device != request.device.target) continue;
    try {
      costs.push_back(cost_of(request.bench, shape, dtype, v.name, request.device.target, &form));
    } catch (const Error&) {
      continue;  // it does not take this shape
    }
  }
  return costs;
}

void set_speedups(std::vector<BenchRow>& rows, const std::string& baseline) {
  for (BenchRow& row : rows) {
    if (!row.ok()) continue;
    for (const BenchRow& naive : rows) {
      if (naive.variant == baseline && naive.status == row.status && naive.dtype == row.dtype &&
          naive.shape == row.shape && naive.form == row.form) {
        row.speedup = naive.timing.p50 / row.timing.p50;
        if (row.variant != baseline) row.versus = compare(naive.timing.samples, row.timing.samples);
      }
    }
  }
}

}  // namespace

bool BenchReport::any_wrong() const {
  return std::any_of(rows.begin(), rows.end(), [](const BenchRow& r) { return r.gate_failed(); });
}

bool BenchReport::any_timed() const {
  return std::any_of(rows.begin(), rows.end(), [](const BenchRow& r) { return r.ok(); });
}

void check_bench_request(const BenchOpRequest& request) {
  const std::string& op = request.bench.op;
  if (request.device.is_meta()) {
    throw Error("meta runs no kernels, so there is nothing to time", "use --device cpu or cuda",
                ErrorKind::usage);
  }
  const std::vector<OpListing> ops = list_ops();
  const OpListing& listing = find_op(ops, op);
  std::vector<std::string> names;
  names.reserve(listing.variants.size());
  for (const VariantListing& v : listing.variants) names.push_back(v.name);
  for (const std::string& wanted : request.variants) {
    const std::string_view today = current_variant(op, wanted);
    if (!today.empty() && std::find(names.begin(), names.end(), today) == names.end())
      throw_no_variant(op, wanted, names, {});
  }
}

namespace {

// One run of `bench op`: the rows as they come, on one context, against one baseline.
class OpBenchRun {
 public:
  OpBenchRun(const BenchOpRequest& request, const std::function<void(const std::string&)>& progress)
      : request_(request),
        progress_(progress),
        ops_(list_ops()),
        listing_(find_op(ops_, request.bench.op)),
        baseline_(baseline_of(listing_)),
        ctx_(options_for(request.device, request.threads, request.seed)) {}

  BenchReport run() {
    const LoadWatch load(request_.device);
    report_.op = request_.bench.op;
    report_.device = request_.device.str();
    report_.device_name = device_name(request_.device);
    report_.threads = ctx_.pool().threads();
    report_.isa = name_of(ctx_.traits().isa);
    progress_("measuring ceilings");
    CeilingWatch watch(ctx_, request_.dtypes);
    for (DType dtype : request_.dtypes) {
      for (const BenchShape& shape : request_.shapes) {
        if (stopped()) break;
        run_shape(shape, dtype);
      }
    }
    progress_("measuring ceilings again");
    set_bounds(watch.finish());
    set_speedups(report_.rows, baseline_);
    progress_("");
    report_.load = load.load();
    return std::move(report_);
  }

 private:
  bool stopped() {
    report_.stopped = report_.stopped || (request_.stop && request_.stop());
    return report_.stopped;
  }

  bool asked_for(const std::string& name) const {
    return request_.variants.empty() ||
           std::any_of(request_.variants.begin(), request_.variants.end(), [&](const std::string& wanted) {
             const std::string_view today = current_variant(request_.bench.op, wanted);
             return today.empty() || today == name;  // any that its table would choose from
           });
  }

  void run_shape(const BenchShape& shape, DType dtype) {
    const std::string cell = cat(request_.bench.op, " ", shape.str(), " ", name_of(dtype), ": ");
    progress_(cat(cell, baseline_, ", to check against"));
    if (std::optional<BenchRow> row = row_that_cannot_run(request_, shape, dtype)) {
      report_.rows.push_back(std::move(*row));
      return;
    }
    const SampledReference reference = make_reference(request_, shape, dtype);
    const OpCase c = request_.bench.make(shape);
    const CaseData data = draw_repeating(c, dtype, request_.seed);
    std::vector<std::size_t> ready;  // rows
    for (const VariantListing& v : listing_.variants) {
      if (!asked_for(v.name)) continue;
      if (stopped()) break;
      progress_(cat(cell, v.name, ", checking"));
      BenchRow row;
      row.variant = v.name;
      row.device = name_of(v.device);
      row.dtype = dtype;
      row.shape = shape;
      if (v.device != request_.device.target) {
        give_up(row, RowStatus::unsupported,
                cat("runs on ", name_of(v.device), ", not on ", name_of(request_.device.target)));
      } else if (std::string slow = why_too_slow(v, reference); !slow.empty()) {
        give_up(row, RowStatus::skipped, std::move(slow));
      } else {
        report_.stopped = !done_unless_stopped([&] {
          attempt(row, [&] { check_forms(reference, row, ready); });
          if (!row.ok()) report_.rows.push_back(row);
        });
        if (report_.stopped) ctx_.tape().reset();
      }
    }
    if (!report_.stopped) time_there_and_back(c, data, cell, ready);
  }

  // Each variant twice, the second time in the opposite order: a machine that gets slower meanwhile, or
  // faster, does so to the first as much as to the last.
  void time_there_and_back(const OpCase& c, const CaseData& data, const std::string& cell,
                           std::vector<std::size_t> ready) {
    const int visits = ready.size() > 1 ? 2 : 1;
    for (int visit = 0; visit < visits && !report_.stopped; ++visit) {
      for (const std::size_t at : ready) {
        BenchRow& row = report_.rows[at];
        if (!row.ok()) continue;  // no memory the first time
        progress_(cat(cell, row.variant, row.form.empty() ? "" : " ", row.form));
        report_.stopped =
            !done_unless_stopped([&] { attempt(row, [&] { time_row(c, data, row, visits); }); });
        if (!row.ok()) row.timing = {};
        if (report_.stopped) break;
      }
      std::reverse(ready.begin(), ready.end());
    }
    if (!report_.stopped) return;
    ctx_.tape().reset();
    std::erase_if(report_.rows, [](const BenchRow& r) { return r.ok() && r.timing.samples.empty(); });
  }

  void time_row(const OpCase& c, const CaseData& data, BenchRow& row, int visits) {
    ctx_.variants().set(request_.bench.op, row.variant);
    const auto form = std::find_if(request_.forms.begin(), request_.forms.end(),
                                   [&](const BenchForm& f) { return f.name == row.form; });
    const TimingOptions options{.max_seconds = row.variant == baseline_ ? 1.5 : 3.0, .stop = request_.stop};
    Timing timing = time_form(ctx_, c, data, *form, row, for_each_visit(options, visits));
    row.timing = row.timing.samples.empty() ? std::move(timing) : merged(row.timing, timing);
  }

  // A variant that does not take this shape, or finds no memory for it, is a result too.
  void attempt(BenchRow& row, const std::function<void()>& work) {
    OutOfMemory full;
    ctx_.allocator().add_observer(&full);
    const OnExit unwatched([&] { ctx_.allocator().remove_observer(&full); });
    try {
      work();
    } catch (const Error& error) {
      ctx_.tape().reset();
      row.set(full.happened                            ? RowStatus::oom
              : error.kind() == ErrorKind::unavailable ? RowStatus::unsupported
                                                       : RowStatus::failed,
              error.what());
    } catch (const std::bad_alloc&) {
      ctx_.tape().reset();
      row.set(RowStatus::oom, "out of memory on the host");
    }
  }

  std::string why_too_slow(const VariantListing& v, const SampledReference& reference) const {
    if (v.name != baseline_ || v.device != DeviceType::cpu || !request_.variants.empty()) return {};
    const double seconds = baseline_seconds(reference);
    if (seconds <= kSlowCall) return {};
    return fmt::format("one call would take about {:.0f} s; --variant {} times it", seconds, baseline_);
  }

  void give_up(BenchRow row, RowStatus status, std::string why) {
    row.set(status, std::move(why));
    report_.rows.push_back(std::move(row));
  }

  // Checked against the baseline; then a row for each form, to be timed.
  void check_forms(const SampledReference& reference, BenchRow& row, std::vector<std::size_t>& ready) {
    ctx_.variants().set(request_.bench.op, row.variant);
    if (std::optional<BenchRow> full = row_that_cannot_run(request_, row.shape, row.dtype, row.variant)) {
      row = std::move(*full);  // naive and composed may need far more than the rest
      return;
    }
    if (!check_variant(ctx_, reference, row)) return row.fail_gate(std::move(row.reason));
    row.gate = Gate::passed;
    for (const BenchForm& form : request_.forms) {
      row.form = form.name;
      row.cost = cost_of(request_.bench, row.shape, row.dtype, row.variant, request_.device.target, &form);
      row.others = costs_of_all(request_, listing_, row.shape, row.dtype, form);
      ready.push_back(report_.rows.size());
      report_.rows.push_back(row);
    }
  }

  void set_bounds(const Ceilings& ceilings) {
    report_.copy = ceilings.copy;
    for (DType t : request_.dtypes)
      report_.flops.push_back(
          {cat(name_of(t), " ", ceilings.flops.at(t).name), ceilings.flops.at(t).per_second});
    for (BenchRow& row : report_.rows) {
      if (row.ok()) set_bound(row, ceilings, request_.device);
    }
  }

  const BenchOpRequest& request_;
  const std::function<void(const std::string&)>& progress_;
  const std::vector<OpListing> ops_;
  const OpListing& listing_;
  const std::string baseline_;
  RankContext ctx_;
  BenchReport report_;
};

}  // namespace

BenchReport bench_op(const BenchOpRequest& request, const std::function<void(const std::string&)>& progress) {
  return OpBenchRun(request, progress).run();
}

}  // namespace kiln
