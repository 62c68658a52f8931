// kiln ops: every op, its variants, and which of them can run here.
#include <cstdio>
#include <memory>

#include "base/error.h"
#include "device/gpu_info.h"
#include "device/require_gpu.h"
#include "kiln/bench_options.h"
#include "kiln/command.h"
#include "kiln/console/progress.h"
#include "kiln/console/stop_on_signals.h"
#include "ops/renamed.h"
#include "studies/op/ops_render.h"
#include "studies/self_check/self_check.h"

namespace kiln::cli {
namespace {

struct Asked {
  std::vector<std::string> names;
  std::string variants;
  bool markdown = false, check = false;
};

// Throws where a variant is not what its op's definition says.
void run_check(const Asked& asked, const CommonOptions& common) {
  for (const std::string& name : asked.names) (void)find_op(list_ops(), name);
  SelfCheckRequest request{device_here(common), asked.names};
  if (request.device.is_meta())
    throw Error("meta runs no kernels, so there is nothing to check", "use --device cpu or cuda",
                ErrorKind::usage);
  std::vector<SelfCheckRow> rows;
  {
    const StopOnSignals signals;
    const BenchProgress progress;
    request.stop = [] { return stop_requested().load(); };
    rows = self_check(request, [&](const std::string& op) { progress("checking " + op); });
  }
  std::fputs(written(self_check_page(rows, request.device), common.json ? PageFormat::json : PageFormat::text)
                 .c_str(),
             stdout);
  for (const SelfCheckRow& r : rows)
    if (!r.passed())
      throw Error(r.op + " " + r.variant + ": " + r.reason, "the other variants stand in the table");
}

void run_ops(const Asked& asked, const CommonOptions& common) {
  if (asked.markdown && common.json)
    throw Error("--markdown and --json are both given; expected one of them", {}, ErrorKind::usage);
  if (asked.check) return run_check(asked, common);
  const VariantChoice chosen = parse_variants(asked.variants);
  const std::vector<OpListing> all = list_ops();
  for (const std::string& name : asked.names) (void)find_op(all, name);
  std::string why_no_gpu;
  const std::vector<GpuInfo> gpus = list_gpus(&why_no_gpu);
  require_gpu(common.device, gpus, why_no_gpu);
  // `auto` on a machine without a GPU lists CUDA variants with the reason why there is none; that the CPU is
  // not a GPU would be no news.
  const bool by_kind = common.device == "auto" && gpus.empty();
  const std::vector<OpListing> here = by_kind ? all : list_ops(Device::parse(common.device));
  check_chosen(here, chosen);
  std::vector<OpListing> shown = asked.names.empty() ? here : std::vector<OpListing>();
  for (const std::string& name : asked.names) shown.push_back(find_op(here, name));
  const std::string page = common.json      ? ops_json(shown)
                           : asked.markdown ? ops_markdown(shown)
                                            : ops_text(shown, chosen);
  std::fputs(page.c_str(), stdout);
}

}  // namespace

void add_ops(Command& c, const CommonOptions& common) {
  auto asked = std::make_shared<Asked>();
  c.opt("NAME", asked->names, "only these ops, in this order")
      .repeat()
      .was_values(former_names_in)
      .unset("all");
  c.opt("--variant", asked->variants, "variants to check for support here")
      .value("OP=NAME,...")
      .was_values(former_names_in);
  c.opt("--markdown", asked->markdown, "the page docs/ops.md, which does not depend on this machine")
      .not_in_config();
  c.opt("--check", asked->check, "run every variant of the device on its cases, against the op's definition")
      .not_in_config();
  c.run = [asked, &common] { run_ops(*asked, common); };
}

}  // namespace kiln::cli
