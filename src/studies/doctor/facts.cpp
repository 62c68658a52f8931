#include "studies/doctor/facts.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "autograd/tape.h"
#include "base/build_info.h"
#include "base/error.h"
#include "data/splitter.h"
#include "device/gpu_code.h"
#include "dist/comm/mpi_process.h"
#include "dist/comm/nccl_transport.h"
#include "dist/launch/launch.h"
#include "dist/launch/transports.h"
#include "ops/linear/linear.h"
#include "perf/timing/timing.h"
#include "studies/variant_check.h"

namespace kiln {
namespace {

bool exists(const char* path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

// The kernel's view, which does not need a working CUDA.
bool gpu_in_machine() { return exists("/dev/nvidia0") || exists("/proc/driver/nvidia/version"); }

std::string cuda_version(int number) { return fmt::format("{}.{}", number / 1000, number % 1000 / 10); }

void check_cpu(const CpuFeatures& features, std::vector<Problem>& problems) {
  if (!features.amx_blocked.empty()) {
    problems.push_back(
        {fmt::format("AMX is in the processor but cannot be used: {}", features.amx_blocked),
         "Linux 5.16 or newer is needed; in a container, its seccomp profile must allow arch_prctl"});
  }
  if (!features.avx2 || !features.fma) {
    problems.push_back(
        {"the processor offers no AVX2 with FMA: CPU kernels run as plain C++, several times slower",
         "in a virtual machine, pass the host's CPU model through"});
  }
}

void check_isa(const DoctorFacts& facts, std::vector<Problem>& problems) {
  if (!facts.isa_refused.empty()) {
    problems.push_back({facts.isa_refused, facts.isa_refused_hint});
  } else if (!facts.isa_forced.empty() && facts.isa < best_cpu_isa()) {
    problems.push_back({fmt::format("KILN_CPU_ISA={} limits CPU kernels to less than this processor has ({})",
                                    facts.isa_forced, name_of(best_cpu_isa())),
                        "unset KILN_CPU_ISA, unless that is what you are studying"});
  }
}

void check_ceilings(const CpuCeilings& c, std::vector<Problem>& problems) {
  if (c.fma.empty() || c.threads < 2) return;
  const Ceiling& fma = c.fma.back().flops;
  const double gain = fma.all / fma.one;
  if (gain < 0.7 * c.threads) {
    problems.push_back(
        {fmt::format("{} threads multiply only {:.1f} times as fast as one: the cores are shared", c.threads,
                     gain),
         "stop other work on this machine before timing anything; with hyper-threads, use half as many "
         "--threads"});
  }
}

// What a run gets, next to what the registers could do.
// Its forward and backward against the definition, on all that is timed.
std::string why_gemm_is_wrong(RankContext& ctx, DType dtype, int64_t size) {
  BenchOpRequest request;
  request.bench = find_op_bench("linear");
  request.device = Device::cpu();
  request.threads = ctx.pool().threads();
  BenchRow judged;
  const SampledReference reference =
      make_reference(request, {{"rows", size}, {"in", size}, {"out", size}}, dtype);
  return check_variant(ctx, reference, judged) ? std::string() : judged.reason;
}

MeasuredGemm measure_gemm(RankContext& ctx, DType dtype, int64_t size) {
  MeasuredGemm gemm{.dtype = dtype, .variant = {}, .wrong = why_gemm_is_wrong(ctx, dtype, size)};
  if (!gemm.wrong.empty()) return gemm;
  Param w;
  w.name = "weight";
  w.shape = {size, size};
  w.value = ctx.zeros(w.shape, dtype);
  const Tensor x = ctx.zeros({size, size}, dtype);
  struct Name : OpObserver {
    std::string& name;
    explicit Name(std::string& n) : name(n) {}
    void on_op_begin(RankContext&, const OpEvent& e) override { name = e.variant; }
  } observer(gemm.variant);
  ctx.add_observer(&observer);
  const GradModeGuard off(ctx, GradMode::off);
  const Timing t =
      time_work({[&] { linear(ctx, x, w); }}, {.min_samples = 5, .min_seconds = 0.02, .max_seconds = 0.1});
  ctx.remove_observer(&observer);
  const auto n = static_cast<double>(size);
  gemm.flops_per_second = 2 * n * n * n / t.min;
  return gemm;
}

std::vector<MeasuredGemm> measure_gemms(CpuIsa isa) {
  RankOptions options;
  options.cpu_isa = isa;
  RankContext ctx(options);
  std::vector<MeasuredGemm> gemms;
  for (const DType dtype : {DType::f32, DType::bf16}) gemms.push_back(measure_gemm(ctx, dtype, 512));
  return gemms;
}

// A GPU this build cannot run on, or that is full or broken, is a problem to report, not one to stop at.
DoctorFacts::MeasuredGpu measure_gpu(int index) {
  DoctorFacts::MeasuredGpu gpu{index, {}, {}};
  try {
    RankOptions options;
    options.device = Device::cuda(index);
    RankContext ctx(options);
    gpu.ceilings = measure_device_ceilings(ctx);
  } catch (const Error& error) {
    gpu.failed = error.what();
  }
  return gpu;
}

void check_gpus(const DoctorFacts& facts, std::string_view cuda_archs, std::vector<Problem>& problems) {
  for (const DoctorFacts::MeasuredGpu& gpu : facts.gpu_ceilings) {
    if (!gpu.failed.empty())
      problems.push_back({fmt::format("cuda:{} could not be measured: {}", gpu.index, gpu.failed),
                          "stop what else runs on it; `kiln doctor --quick` measures nothing"});
  }
  for (const GpuInfo& gpu : facts.gpus) {
    const int number = 10 * gpu.major + gpu.minor;
    const GpuCode code = gpu_code_for(cuda_archs, gpu.major, gpu.minor);
    if (code == GpuCode::none) {
      problems.push_back({fmt::format("cuda:{} ({}, sm_{}) cannot run this build, which holds code for {}",
                                      gpu.index, gpu.name, number, cuda_archs),
                          how_to_build_for(gpu.major, gpu.minor)});
    } else if (code == GpuCode::ptx) {
      problems.push_back(
          {fmt::format("cuda:{} ({}, sm_{}) runs this build by compiling PTX at its first start", gpu.index,
                       gpu.name, number),
           fmt::format("for a fast start build with `make cuda CUDA_ARCHS={}`", number)});
    }
    if (gpu.driver_version < gpu.runtime_version) {
      problems.push_back(
          {fmt::format("the driver is for CUDA {}, this build uses {}: some features may be missing",
                       cuda_version(gpu.driver_version), cuda_version(gpu.runtime_version)),
           "install a newer NVIDIA driver"});
    }
  }
}

}  // namespace

std::vector<Problem> find_problems(const DoctorFacts& facts, bool built_with_cuda,
                                   std::string_view cuda_archs, bool gpu_present) {
  std::vector<Problem> problems;
  check_cpu(facts.features, problems);
  check_isa(facts, problems);
  if (facts.ceilings) check_ceilings(*facts.ceilings, problems);
  if (!built_with_cuda && gpu_present) {
    problems.push_back({"this machine has an NVIDIA GPU, but this program was built without CUDA",
                        "run `make cuda` and use build-cuda/kiln"});
  }
  if (built_with_cuda && facts.gpus.empty()) {
    problems.push_back({fmt::format("no GPU can be used: {}", facts.why_no_gpu),
                        gpu_present
                            ? "check that `nvidia-smi` works; in a container, that it was given the GPU"
                            : "this machine seems to have none; --device cpu and meta work without"});
  }
  if (built_with_cuda && facts.cublaslt_version == 0) {
    problems.push_back({"cuBLASLt cannot be loaded: matmuls will not run on the GPU",
                        "put the CUDA toolkit's lib64 folder into LD_LIBRARY_PATH"});
  }
  check_gpus(facts, cuda_archs, problems);
  return problems;
}

DoctorFacts examine_machine(bool measure) {
  const BuildInfo& build = build_info();
  DoctorFacts facts;
  const LoadWatch load(gpu_in_machine() ? Device::cuda(0) : Device::cpu());
  facts.cpu_model = cpu_model();
  facts.features = cpu_features();
  const char* forced = std::getenv("KILN_CPU_ISA");
  facts.isa_forced = forced ? forced : "";
  try {
    facts.isa = cpu_isa_from_environment();
  } catch (const Error& error) {  // a problem to report, not one to stop at
    facts.isa = best_cpu_isa();
    facts.isa_refused = error.what();
    facts.isa_refused_hint = error.hint();
  }
  facts.limits = read_host_limits();
  if (measure) {
    ThreadPool pool(ThreadPool::available_threads());
    facts.ceilings = measure_cpu_ceilings(pool, facts.isa);
    facts.gemms = measure_gemms(facts.isa);
  }
  facts.gpus = list_gpus(&facts.why_no_gpu);
  if (measure) {
    for (const GpuInfo& gpu : facts.gpus) {
      if (gpu_code_for(build.cuda_archs, gpu.major, gpu.minor) != GpuCode::none)
        facts.gpu_ceilings.push_back(measure_gpu(gpu.index));
    }
  }
  facts.cublaslt_version = cublaslt_version();
  const std::string_view without_gpu = "models run on the CPU only";
  const std::string pcre2 = pcre2_version();
  std::string why_no_nccl;
  std::string nccl = nccl_library(&why_no_nccl);
  if (nccl.empty()) nccl = why_no_nccl;
  for (const std::string_view name : transports_here()) facts.transports.emplace_back(name);
  facts.parts = {
      {"cuda", build.cuda, fmt::format("code for {}", build.cuda_archs), without_gpu},
      {"cublaslt", build.cuda, fmt::format("version {}", facts.cublaslt_version), without_gpu},
      {"pcre2", !pcre2.empty(), fmt::format("version {}", pcre2),
       "tokenizers that split words by another pattern than GPT-2's cannot be used; install libpcre2-dev"},
      {"mpi", mpi_built_in(),
       fmt::format("{}; {}", mpi_library(),
                   find_mpirun().empty() ? "mpirun was not found: install openmpi-bin" : find_mpirun()),
       "ranks cannot be processes, only threads; install libopenmpi-dev openmpi-bin"},
      {"nccl", nccl_built_in(), nccl, "collectives between GPUs go through the host"},
  };
  facts.problems = find_problems(facts, build.cuda, build.cuda_archs, gpu_in_machine());
  for (const MeasuredGemm& g : facts.gemms) {
    if (!g.wrong.empty())
      facts.problems.push_back(
          {fmt::format("matmul in {} computes something else: {}", name_of(g.dtype), g.wrong),
           "this build must not be trained with: run `make test`"});
  }
  facts.load = load.load();
  return facts;
}

}  // namespace kiln
