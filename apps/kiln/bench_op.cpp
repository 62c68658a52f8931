#include "studies/op/op.h"

#include <fmt/format.h>

#include <algorithm>

#include "autograd/tape.h"
#include "device/cpu/host_limits.h"
#include "studies/ceilings.h"
#include "kiln/bench_check.h"
#include "studies/op/pass_clock.h"
#include "studies/place.h"
#include "ops/select.h"
#include "perf/model/cost_sum.h"

namespace kiln::cli {
namespace {

constexpr double kSlowCall = 3;  // seconds; slower naive rows are timed only when asked for by name

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

void check_memory(const BenchOpRequest& request, const BenchShape& shape, DType dtype,
                  std::string_view variant = {}) {
  const OpCase c = request.bench.make(shape);
  const double available = static_cast<double>(read_host_limits().memory_available);
  double host = 0;
  try {
    host = bytes_needed(request, c, dtype, variant, available);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::failed) throw;
    throw Error(fmt::format("[{}] {} in {}: {}", c.op, shape.str(), name_of(dtype), error.what()),
                "ask for a smaller --shape", ErrorKind::unavailable);  // more than can be counted
  }
  if (host > 0.9 * available) {
    throw Error(fmt::format("[{}] {} in {} needs {:.1f} GiB of host memory, {:.1f} are available", c.op,
                            shape.str(), name_of(dtype), host / 0x1p30, available / 0x1p30),
                "ask for a smaller --shape", ErrorKind::unavailable);
  }
}

// A shape or a variant without room is a row like the others. Without a variant: the one a run takes.
std::optional<BenchRow> row_without_room(const BenchOpRequest& request, const BenchShape& shape, DType dtype,
                                         std::string_view variant = {}) {
  try {
    check_memory(request, shape, dtype, variant);
    return std::nullopt;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::unavailable) throw;
    BenchRow row;
    row.status = BenchRow::Status::no_memory;
    row.variant = variant.empty() ? "auto" : std::string(variant);
    row.device = name_of(request.device.target);
    row.reason = error.what();
    row.dtype = dtype;
    row.shape = row.checked_at = shape;
    return row;
  }
}

// What each variant on this device states for a form: the least of them is the floor.
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
    if (row.status != BenchRow::Status::timed) continue;
    for (const BenchRow& naive : rows) {
      if (naive.variant == baseline && naive.status == row.status && naive.dtype == row.dtype &&
          naive.shape == row.shape && naive.form == row.form) {
        row.speedup = naive.timing.p50 / row.timing.p50;
        if (row.variant != baseline) row.versus = compare(naive.timing.samples, row.timing.samples);
      }
    }
  }
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
    if (std::find(names.begin(), names.end(), wanted) == names.end()) throw_no_variant(op, wanted, names, {});
  }
}

BenchReport bench_op(const BenchOpRequest& request, const std::function<void(const std::string&)>& progress) {
  const std::string& op = request.bench.op;
  const std::vector<OpListing> ops = list_ops();
  const OpListing& listing = find_op(ops, op);
  const std::string baseline = baseline_of(listing);
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
  auto stopped = [&] {
    report.stopped = report.stopped || (request.stop && request.stop());
    return report.stopped;
  };
  for (DType dtype : request.dtypes) {
    for (const BenchShape& shape : request.shapes) {
      if (stopped()) break;
      progress(cat(op, " ", shape.str(), " ", name_of(dtype), ": ", baseline, ", to check against"));
      if (std::optional<BenchRow> row = row_without_room(request, shape, dtype)) {
        report.rows.push_back(std::move(*row));
        continue;
      }
      const Reference reference = make_reference(request, shape, dtype, baseline);
      const OpCase c = request.bench.make(shape);
      const CaseData data = draw_repeating(c, dtype, request.seed);
      for (const VariantListing& v : listing.variants) {
        if (!asked_for(v.name)) continue;
        if (stopped()) break;
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
          if (std::optional<BenchRow> full = row_without_room(request, shape, dtype, v.name)) {
            report.rows.push_back(std::move(*full));  // naive and composed may need far more than the rest
            continue;
          }
          if (!check_variant(ctx, request, reference, dtype, row)) {
            row.status = BenchRow::Status::wrong;
            report.rows.push_back(row);
            continue;
          }
          for (const BenchForm& form : request.forms) {
            row.form = form.name;
            row.cost = cost_of(request.bench, shape, dtype, v.name, request.device.target, &form);
            row.others = costs_of_all(request, listing, shape, dtype, form);
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
    if (row.status == BenchRow::Status::timed) set_bound(row, ceilings, request.device);
  }
  set_speedups(report.rows, baseline);
  progress("");
  return report;
}

}  // namespace kiln::cli
