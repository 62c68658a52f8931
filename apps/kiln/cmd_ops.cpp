// kiln ops: every op, its variants, and which of them can run here.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "device/gpu_info.h"
#include "kiln/cmd.h"
#include "studies/op/ops_render.h"
#include "device/require_gpu.h"
#include "ops/op_list.h"
#include "ops/select.h"

namespace kiln::cli {
namespace {

struct OpsOptions {
  std::vector<std::string> names;
  std::string variants;
  bool markdown = false;
};

// `auto` on a machine without a GPU lists CUDA variants with the reason why there is none; that the CPU is
// not a GPU would be no news.
std::vector<OpListing> list_for(const std::string& device) {
  std::string why_no_gpu;
  const std::vector<GpuInfo> gpus = list_gpus(&why_no_gpu);
  require_gpu(device, gpus, why_no_gpu);
  return device == "auto" && gpus.empty() ? list_ops() : list_ops(Device::parse(device));
}

// A variant asked for by name must be able to run on the listing's device.
void check_chosen(const std::vector<OpListing>& ops, const VariantChoice& chosen) {
  for (const auto& [op, wanted] : chosen.all()) {
    bool runs = false;
    std::vector<std::string> names, reasons;
    for (const VariantListing& v : find_op(ops, op).variants) {
      names.push_back(v.name);
      if (v.name != wanted) continue;
      runs |= v.available;
      reasons.push_back(cat(v.name, " (", name_of(v.device), "): ", v.reason));
    }
    if (!runs) throw_no_variant(op, wanted, names, reasons);
  }
}

void run_ops(const OpsOptions& options, const CommonOptions& common) {
  if (options.markdown && common.json) {
    throw Error("--markdown and --json are both given; expected one of them", {}, ErrorKind::usage);
  }
  const VariantChoice chosen = parse_variants(options.variants);
  const std::vector<OpListing> all = list_ops();
  for (const std::string& name : options.names) (void)find_op(all, name);

  const std::vector<OpListing> here = list_for(common.device);
  check_chosen(here, chosen);
  std::vector<OpListing> shown = options.names.empty() ? here : std::vector<OpListing>();
  for (const std::string& name : options.names) shown.push_back(find_op(here, name));

  const std::string page = common.json        ? ops_json(shown)
                           : options.markdown ? ops_markdown(shown)
                                              : ops_text(shown, chosen);
  std::fputs(page.c_str(), stdout);
}

}  // namespace

CommandBody add_ops(CLI::App& app, const CommonOptions& common) {
  auto options = std::make_shared<OpsOptions>();
  app.add_option("NAME", options->names, "Only these ops, in this order (default all)")->type_name("");
  app.add_option("--variant", options->variants, "The variants a run would ask for: can it have them?")
      ->type_name("OP=NAME,...");
  app.add_flag("--markdown", options->markdown, "The page docs/ops.md: no word on this machine");
  return [options, &common] { run_ops(*options, common); };
}

}  // namespace kiln::cli
