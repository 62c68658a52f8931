#include "kiln/cmd_bench_ranks.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "device/gpu_info.h"
#include "kiln/bench_options.h"
#include "base/parse_number.h"
#include "device/require_gpu.h"

namespace kiln::cli {

void add_ranks_options(CLI::App& study, TypedRanks& t) {
  study.add_option("--size", t.size, "A model by a name of kiln sizes (default micro)")->type_name("NAME");
  study.add_option("--link", t.link, "Pace collectives as such a link would: latency=50us,bandwidth=1GB/s")
      ->type_name("MODEL");
  study.add_option("--ctx,--context", t.context, "Tokens of a sequence (default 128)")->type_name("N");
  study.add_option("--dtype,--precision", t.dtype, "fp32 (default), bf16, autocast, pure-bf16, fp16")
      ->type_name("NAME");
  study.add_option("--vocab", t.vocab, "Tokens of the vocabulary (default as the size has it)")
      ->type_name("N");
  study.add_option("--threads", t.threads, "Of each rank (default the machine's, shared out)")
      ->type_name("N");
}

void read_ranks_study(const TypedRanks& t, const CommonOptions& common, int least_warmups, RanksStudy& r) {
  const std::vector<ModelSize> sizes = read_sizes(t.size, t.vocab);
  if (sizes.size() != 1)
    throw Error(fmt::format("--size is '{}'; expected one", t.size), "sweep several with --grid size=...",
                ErrorKind::usage);
  r.size = sizes.front();
  if (!t.link.empty()) r.link = LinkModel::parse(t.link, "--link");
  r.precision = parse_precision("--dtype", t.dtype);
  read_number<int64_t>("--batch", t.batch, 1, 1 << 20, r.batch);
  read_number<int64_t>("--ctx", t.context, 1, 1 << 24, r.context);
  read_number<int>("--warmup", t.warmups, least_warmups, 1 << 20, r.warmups);
  read_number<int>("--steps", t.steps, 1, 1 << 20, r.steps);
  r.threads = parse_threads(t.threads);
  r.seed = common.seed;
}

Device device_of(const CommonOptions& common) {
  std::string why_no_gpu;
  const std::vector<GpuInfo> gpus = list_gpus(&why_no_gpu);
  require_gpu(common.device, gpus, why_no_gpu);
  return Device::parse(common.device);
}

}  // namespace kiln::cli
