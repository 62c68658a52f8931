// What one op call costs the host: check, select, allocate from the cache, record on the tape. The budget is
// 1 microsecond an op, so that the host stays ahead of any GPU kernel worth launching.
//
// On `meta` the call does everything but the kernel, so its time is the dispatch alone. The `cpu` rows run
// the real kernels on tensors of one row of 8, which adds the kernel and its dispatch to the thread pool (of
// one).
//
// Calls are timed in steps of 96, the length of a small model's forward. Dropping a step's tape afterwards is
// not in the time: backward does that, node by node. `drop` shows what it costs.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <string>
#include <vector>

#include "autograd/param_store.h"
#include "autograd/tape.h"
#include "ops/add/add.h"
#include "ops/attention/attention.h"
#include "ops/linear/linear.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/swiglu/swiglu.h"

namespace kiln {
namespace {

constexpr int kCallsPerStep = 96;

RankOptions options_for(const Device& device) {
  RankOptions options;
  options.device = device;
  options.threads = 1;
  return options;
}

// A rank with a leaf that wants a gradient and the weights the ops need.
struct Bench {
  explicit Bench(const Device& device)
      : ctx(options_for(device)),
        norm(params.add("norm.weight", {kCols}, {ParamInit::Kind::ones, 0, 0}, false)),
        weight(params.add("linear.weight", {kCols, kCols}, {})) {
    params.materialize(ctx);
    data = ctx.zeros({1, 1, kCols}, DType::f32);
  }

  Tensor begin_step() {
    ctx.tape().reset();
    params.begin_step();
    return ctx.tape().watch(data);
  }

  static constexpr int64_t kCols = 8;
  RankContext ctx;
  ParamStore params;
  Param& norm;
  Param& weight;
  Tensor data;
};

Tensor call_add(Bench& b, const Tensor& x) { return add(b.ctx, x, x); }
Tensor call_rms_norm(Bench& b, const Tensor& x) { return rms_norm(b.ctx, x, b.norm, 1e-5f); }
Tensor call_linear(Bench& b, const Tensor& x) { return linear(b.ctx, x, b.weight); }
Tensor call_swiglu(Bench& b, const Tensor& x) { return swiglu(b.ctx, x, x); }
Tensor call_attention(Bench& b, const Tensor& x) {
  return attention(b.ctx, x, x, x, {.heads = 2, .kv_heads = 2});
}

using Call = Tensor (*)(Bench&, const Tensor&);

void dispatch(benchmark::State& state, const Device& device, Call call) {
  Bench bench(device);
  while (state.KeepRunning()) {
    state.PauseTiming();
    const Tensor leaf = bench.begin_step();
    state.ResumeTiming();
    Tensor x = leaf;
    for (int i = 0; i < kCallsPerStep; ++i) x = call(bench, x);
    benchmark::DoNotOptimize(x);
  }
  state.SetItemsProcessed(state.iterations() * kCallsPerStep);
}

// Forgetting a recorded step: the saved tensors go back to the cache.
void drop(benchmark::State& state, const Device& device, Call call) {
  Bench bench(device);
  while (state.KeepRunning()) {
    state.PauseTiming();
    Tensor x = bench.begin_step();
    for (int i = 0; i < kCallsPerStep; ++i) x = call(bench, x);
    x = {};
    state.ResumeTiming();
    bench.ctx.tape().reset();
  }
  state.SetItemsProcessed(state.iterations() * kCallsPerStep);
}

// Prints ns an op: Google Benchmark's own columns count whole steps. CPU time, because others may share the
// core.
class Table : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override {
    std::printf("%-28s %12s %10s\n", "one call", "median ns", "spread");
    return true;
  }
  void ReportRuns(const std::vector<Run>& runs) override {
    double median = 0, deviation = 0;
    for (const Run& run : runs) {
      if (run.aggregate_name == "median") median = run.GetAdjustedCPUTime();
      if (run.aggregate_name == "stddev") deviation = run.GetAdjustedCPUTime();
    }
    if (median == 0) return;
    std::printf("%-28s %12.0f %9.1f%%\n", runs.front().run_name.function_name.c_str(), median / kCallsPerStep,
                100 * deviation / median);
    std::fflush(stdout);
  }
};

}  // namespace
}  // namespace kiln

int main(int argc, char** argv) {
  using namespace kiln;
  struct Row {
    const char* name;
    Call call;
  };
  constexpr Row kRows[] = {{"add", call_add},
                           {"rms_norm", call_rms_norm},
                           {"linear", call_linear},
                           {"swiglu", call_swiglu},
                           {"attention", call_attention}};
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  auto add_row = [](const std::string& name, void (*body)(benchmark::State&, const Device&, Call),
                    const Device& device, Call call) {
    benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) { body(state, device, call); })
        ->Repetitions(9)
        ->ReportAggregatesOnly()
        ->MinTime(0.1);
  };
  for (const Device& device : {Device::meta(), Device::cpu()}) {
    for (const Row& row : kRows) add_row(device.str() + "/" + row.name, dispatch, device, row.call);
  }
  add_row("meta/drop/rms_norm", drop, Device::meta(), call_rms_norm);
  Table table;
  benchmark::RunSpecifiedBenchmarks(&table);
  benchmark::Shutdown();
  return 0;
}
