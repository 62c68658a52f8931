// kiln fit: what fits into a memory limit.
#include <cstdio>
#include <memory>

#include "base/error.h"
#include "base/units.h"
#include "kiln/bench_options.h"
#include "kiln/command.h"
#include "kiln/console/progress.h"
#include "ops/renamed.h"
#include "studies/fit/fit.h"
#include "train/presets.h"

namespace kiln::cli {
namespace {

constexpr std::size_t kLeastMemory = std::size_t{1} << 20;

struct Asked {
  FitRequest request;
  ModelOptions model = {.sizes = {"small"}};
  std::string memory, hardware;
  PageFormat format = PageFormat::text;
};

FitRequest request_of(const Asked& asked, const CommonOptions& common) {
  FitRequest r = asked.request;
  r.model = model_of(asked.model);
  r.seed = common.seed;
  r.folder = common.out;
  if (!asked.memory.empty()) {
    r.memory = parse_bytes(asked.memory, "--memory").value;
    if (r.memory < kLeastMemory)
      throw Error(cat("--memory is '", asked.memory, "'; expected 1MiB or more"), "24GiB, say",
                  ErrorKind::usage);
  }
  if (!asked.hardware.empty()) r.hardware = find_hardware(asked.hardware);
  if (!r.hardware) r.device = device_here(common);
  return r;
}

}  // namespace

void add_fit(Command& c, const CommonOptions& common) {
  auto asked = std::make_shared<Asked>();
  FitRequest& r = asked->request;
  c.note = "Answered from meta runs: nothing is computed, and no device is needed.";
  add_model_options(c.options, asked->model, /*several=*/false);
  c.opt("--memory", asked->memory, "memory limit: 8GiB, 800MiB")
      .value("SIZE")
      .unset("of --hw; else what is free on --device");
  c.opt("--hw", asked->hardware,
        cat("a device that is not here: ", joined(hardware_names()), ", or a hardware file"))
      .value("NAME")
      .unset("this machine");
  c.opt("--batch", r.batch, between(1, 1 << 20), "micro-batch size");
  c.opt("--ctx,--context", r.context, between(1, 1 << 20), "sequence length");
  c.opt("--grad-accum", r.micro_steps, between(1, 1 << 16), "gradient accumulation: micro-steps of a step");
  c.opt("--precision,--dtype", r.precision, precision_form(), "{}").offers(precision_names());
  c.opt("--preset", r.preset, preset_names(), "{}");
  c.opt("--variant", r.variants, "op variants on top of the preset: attention=naive,qkv=split,...")
      .value("OP=NAME,...")
      .was_values(former_names_in);
  c.opt("--confirm", r.confirm,
        "also run the step as asked, and show its measured peak beside the predicted one");
  c.opt("--threads", r.threads, thread_range(), "CPU threads").unset("all");
  add_page_options(c, asked->format);
  c.run = [asked, &c, &common] {
    const PageFormat format = page_format(c, asked->format, common);
    const FitRequest request = request_of(*asked, common);
    FitReport report;
    {
      const BenchProgress progress;
      report = fit(request, [&](const std::string& text) { progress(text); });
    }
    std::fputs(written(fit_page(report, common.wide), format).c_str(), stdout);
  };
}

}  // namespace kiln::cli
