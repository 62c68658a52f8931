#include "studies/residuals/residuals.h"

#include <fmt/format.h>

#include <algorithm>

#include "autograd/tape.h"
#include "base/choice.h"
#include "device/device_room.h"
#include "ops/cases/run_case.h"
#include "ops/op_list.h"
#include "perf/model/cost_sum.h"
#include "studies/variant_check.h"
#include "train/presets.h"

namespace kiln {
namespace {

constexpr double kSeconds = 3e11;  // FLOPs: a few seconds of plain loops on a core

struct CaseRun {
  ResidualLedger ledger;
  OpResiduals::Memory memory;
  std::size_t gradients = 0;
  Cost backward;
  double flops = 0;
};

// Activations and workspace: what the op itself takes. Its inputs are data, its weights parameters.
std::size_t own_bytes(RankContext& ctx) {
  const MemoryStats m = ctx.allocator().stats();
  return m.live[Tag::activation] + m.live[Tag::workspace];
}

CaseRun run_variant(const ResidualsOpRequest& request, const std::string& variant, const Device& device) {
  RankContext ctx(options_for(device, request.threads, request.seed));
  const OpCase c = request.bench.make(request.shape);
  ctx.variants().set(c.op, variant);
  CaseData data;
  data.inputs.resize(c.inputs.size());
  if (!device.is_meta()) data = draw_repeating(c, request.dtype, request.seed);
  CaseSetup setup(ctx, c, data, request.dtype);
  setup.begin_step();
  ResidualWatch watch(ctx);
  CostSum costs(ctx);
  CaseRun run;
  for (std::size_t i = 0; i < c.inputs.size(); ++i) {
    const CaseArgument& in = setup.arguments()[i];
    if (in.param == nullptr) watch.name_input(c.inputs[i].name, in.tensor);
    if (in.param != nullptr) run.gradients += in.param->grad.bytes().value;
    if (in.param == nullptr && ctx.tape().needs_grad(in.tensor)) run.gradients += in.tensor.bytes().value;
  }
  ctx.allocator().reset_peaks();
  const std::size_t before = own_bytes(ctx), live_before = ctx.allocator().stats().live_total;
  (void)c.call(ctx, setup.arguments());  // its outputs are dropped: what is left is what the tape keeps
  run.ledger = watch.take();
  run.memory.kept = own_bytes(ctx) - before;
  setup.begin_step();
  CaseOutputs y = c.call(ctx, setup.arguments());
  SmallVector<Tensor, 2> grads = setup.upload_gradients(
      y, device.is_meta() ? std::vector<double>() : repeat_to({1.0, -0.5, 0.25}, y.numel()));
  setup.backward(y, std::move(grads));
  ctx.synchronize();
  y = {};
  run.memory.net_change =
      static_cast<int64_t>(own_bytes(ctx)) - static_cast<int64_t>(before + run.memory.kept);
  run.memory.peak = ctx.allocator().stats().peak_total - live_before;
  run.backward = costs.backward;
  run.flops = costs.forward.flops + costs.backward.flops;  // forward twice
  ctx.tape().reset();
  return run;
}

bool worth_running(const Device& device, double flops, std::size_t bytes) {
  if (device.is_meta()) return false;
  const std::size_t free_memory = free_memory_on(device);
  return (device.type == DeviceType::cuda || flops < kSeconds) && bytes < free_memory / 2;
}

}  // namespace

BenchShape parse_residual_shape(const OpBench& bench, std::string_view text) {
  if (text.empty()) return bench.shapes.front();
  if (text.find('=') != std::string_view::npos) return parse_bench_shape(bench, text);
  std::vector<std::string> numbers = split_at_commas(text);
  const auto& sizes = bench.shapes.front().all();
  std::string named;
  std::size_t extra = numbers.size() > sizes.size() ? numbers.size() - sizes.size() : 0;
  int64_t first = 1;
  for (std::size_t i = 0; i <= extra; ++i) {  // each by itself, so that a wrong one is named
    const BenchShape one = parse_bench_shape(bench, fmt::format("{}={}", sizes.front().first, numbers[i]));
    if (__builtin_mul_overflow(first, one[sizes.front().first], &first))
      throw Error(fmt::format("--shape is '{}'; the product of its leading numbers overflows", text), {},
                  ErrorKind::usage);
  }
  named = fmt::format("{}={}", sizes.front().first, first);
  for (std::size_t i = extra + 1; i < numbers.size(); ++i)
    named += fmt::format(",{}={}", sizes[i - extra].first, numbers[i]);
  return parse_bench_shape(bench, named);
}

ResidualsOpReport op_residuals(const ResidualsOpRequest& request) {
  ResidualsOpReport report{request, {}};
  const Device meta = Device::meta(request.device.target);
  const OpCase c = request.bench.make(request.shape);
  for (const CaseInput& in : c.inputs) {
    const std::size_t bytes = static_cast<std::size_t>(in.shape.numel()) * size_of(request.dtype);
    if (in.kind != CaseInput::Kind::activation) continue;
    report.floor += bytes;
    report.largest_input = std::max(report.largest_input, bytes);
  }
  const std::vector<OpListing> all = list_ops(meta);
  const OpListing& op = find_op(all, c.op);
  for (const VariantListing& v : op.variants) {
    if (v.device != request.device.target) continue;
    const auto& asked = request.variants;
    if (!asked.empty() && std::find(asked.begin(), asked.end(), v.name) == asked.end()) continue;
    OpResiduals row;
    row.variant = v.name;
    try {
      CaseRun planned = run_variant(request, v.name, meta);
      row.ledger = std::move(planned.ledger);
      row.predicted = planned.memory;
      row.gradients = planned.gradients;
      row.backward = planned.backward;
      if (worth_running(request.device, planned.flops, planned.memory.peak))
        row.measured = run_variant(request, v.name, request.device).memory;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::unavailable || !asked.empty()) throw;
      row.reason = error.what();
    }
    if (row.reason.empty()) report.floor = std::min(report.floor, row.ledger.bytes());
    report.variants.push_back(std::move(row));
  }
  return report;
}

ResidualsBlockReport block_report(const ResidualsBlockRequest& request) {
  ResidualsBlockReport report{request, {}};
  for (const std::string& preset : request.presets) {
    BlockRequest b = request.block;
    const RunVariants chosen = choose_variants(preset, request.variants, b.rank.device.target);
    chosen.apply_to(b.model);
    b.rank.variants = chosen.ops;
    b.measure = false;
    BlockResiduals planned = block_residuals(b);
    b.measure = worth_running(b.rank.device, planned.flops, 6 * planned.predicted.kept);
    report.blocks.push_back(b.measure ? block_residuals(b) : std::move(planned));
  }
  return report;
}

}  // namespace kiln
