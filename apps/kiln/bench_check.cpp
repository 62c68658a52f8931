#include "kiln/bench_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "device/gpu_info.h"

namespace kiln::cli {

RankOptions options_for(const Device& device, int threads, uint64_t seed) {
  RankOptions o;
  o.device = device;
  o.threads = threads;
  o.seed = seed;
  if (device.type != DeviceType::cuda) return o;
  for (const GpuInfo& gpu : list_gpus()) {  // what is planned for it must be what runs on it
    if (device == Device::cuda(gpu.index)) o.meta_compute_capability = 10 * gpu.major + gpu.minor;
  }
  return o;
}

bool has_backward(const OpBench& bench) {
  return std::any_of(bench.forms.begin(), bench.forms.end(),
                     [](const BenchForm& f) { return f.pass == Pass::backward; });
}

std::string baseline_of(const OpListing& op) {
  for (const char* name : {"naive", "composed"}) {
    for (const VariantListing& v : op.variants) {
      if (v.device == DeviceType::cpu && v.name == name) return name;
    }
  }
  throw Error(cat("[", op.name, "] has no naive or composed variant to check against"));
}

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

}  // namespace kiln::cli
