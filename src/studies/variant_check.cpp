#include "studies/variant_check.h"

#include <algorithm>

#include "base/choice.h"
#include "device/gpu_info.h"
#include "studies/gate/sampling.h"

namespace kiln {

std::vector<std::string> read_variants(std::string_view option, std::string_view op, const std::string& text,
                                       DeviceType device) {
  if (text.empty() || text == "all") return {};
  std::vector<std::string_view> names;
  const std::vector<OpListing> ops = list_ops();
  for (const VariantListing& v : find_op(ops, op).variants)
    if (v.device == device) names.push_back(v.name);
  return read_list<std::string>(text, [&](const std::string& word) {
    index_of(option, word, names);
    return word;
  });
}

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

SampledReference make_reference(const BenchOpRequest& request, const BenchShape& shape, DType dtype) {
  return {request.bench.sampled(shape, gate_sampling(request.device, request.seed)), dtype, request.seed,
          request.threads};
}

double baseline_seconds(const SampledReference& reference) {
  return reference.seconds() * reference.sampled().work_of_whole();
}

bool check_variant(RankContext& ctx, const SampledReference& reference, BenchRow& row) {
  const SampledResult result = reference.check(ctx);
  row.error = result.worst.error;
  row.allowed = result.worst.allowed;
  row.checked_rows = reference.sampled().taken;
  row.all_rows = reference.sampled().total;
  row.reason = result.reason;
  return result.passed;
}

}  // namespace kiln
