// kiln plan: layouts of a model over N devices, the quickest that fits first.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "base/error.h"
#include "device/device_room.h"
#include "kiln/bench_options.h"
#include "kiln/rank_options.h"
#include "rows/result_log.h"
#include "studies/plan/check.h"

namespace kiln::cli {
namespace {

struct Asked {
  PlanRequest request;
  ModelOptions model = {.sizes = {"small"}};
  std::string hardware = "h100";
  bool check = false;
  PlanCheckRequest checked;
  PageFormat format = PageFormat::text;
  SweepOptions sweep;
};

void finish(Asked& asked, const Command& c, const CommonOptions& common) {
  PlanRequest& q = asked.request;
  if (was_given(c, "--batch") && was_given(c, "--batch-per-device"))
    throw Error("--batch and --batch-per-device are both given; expected one of them",
                "--batch is of all devices together", ErrorKind::usage);
  const std::vector<std::string>& sizes = asked.model.sizes;
  const bool named = sizes.size() == 1 && asked.model.model.empty();
  if (named && find_model_size(sizes.front()).kind == SizeKind::ffn_only)
    q.ffn_only = find_model_size(sizes.front());
  else
    q.model = model_of(asked.model);
  q.hardware = find_hardware(asked.hardware);
  q.seed = common.seed;
}

void run_check(Asked& asked, const Command& c, const CommonOptions& common, PageFormat format) {
  PlanCheckRequest& q = asked.checked;
  q.plan = asked.request;
  q.device = common.device == "auto" ? Device::cpu() : device_here(common);
  q.folder = common.out;
  check_plan_check(q);
  if (asked.sweep.dry_run) return;
  if (was_given(c, "--hw"))
    q.plan.hardware.memory = static_cast<double>(free_memory_on(q.device));
  else
    machine_here(q);
  prepare_results(common.out);
  const PlanCheckReport report = watched(q, plan_check);
  if (report.rows.empty()) return;  // stopped
  std::fputs(written(plan_check_page(report, common.wide), format).c_str(), stdout);
  append_results(common.out, plan_check_lines(report));
  for (const PlanCheckRow& r : report.rows)
    if (r.gate_failed()) throw Error(fmt::format("{}: {}", r.predicted.layout.name(), r.reason));
}

void run_plan(Asked& asked, const Command& c, const CommonOptions& common) {
  const PageFormat format = page_format(c, asked.format, common);
  if (asked.sweep.asked() && !asked.check)
    throw Error("--grid makes rows of its cells, and kiln plan has rows with --check alone",
                "add --check, or give lists: --devices 8,16,64", ErrorKind::usage);
  if (asked.sweep.asked()) return run_bench_sweep(asked.sweep, swept(c, common), common, format);
  finish(asked, c, common);
  if (asked.check) return run_check(asked, c, common, format);
  std::vector<PlanReport> reports;
  for (const int devices : asked.request.devices) {
    reports.push_back(plan(asked.request, devices));
    if (!reports.back().any_fits()) refuse_too_large(reports.back());
  }
  std::fputs(written(plan_pages(reports, common.wide), format).c_str(), stdout);
}

void add_machine_options(Command& c, Asked& asked) {
  PlanRequest& r = asked.request;
  c.opt("--devices", r.devices, between(1, 1 << 16), "number of devices; several: a plan for each")
      .value("N,...");
  c.opt("--hw", asked.hardware, fmt::format("device: {}, or a hardware file", joined(hardware_names())));
  c.opt("--node", r.node, between(1, 1 << 16), "devices of a node");
  c.opt("--link", r.link, link_form(), "link inside a node: latency=3us,bandwidth=450GB/s")
      .value("MODEL")
      .unset("the hardware's");
  c.opt("--inter-link", r.inter_link, link_form("--inter-link"), "link of each device to other nodes")
      .value("MODEL")
      .unset(kDefaultInterLink.str());
}

void add_check_options(Command& c, Asked& asked) {
  PlanCheckRequest& r = asked.checked;
  c.opt("--check", asked.check,
        "run the first rows here, ranks as threads on the modelled --link, beside the prediction");
  c.opt("--candidates", r.candidates, between(1, 64), "with --check: rows to run, the first ones");
  c.opt("--rounds", r.rounds, between(1, 1 << 16), "with --check: rounds, each of all rows in turn");
  c.opt("--warmup", r.warmups, between(2, 1 << 16), "with --check: warm-up steps of a round");
  c.opt("--steps", r.steps, between(1, 1 << 16), "with --check: timed steps of a round");
  c.opt("--oversubscribe", r.oversubscribe, "with --check: more than 4 ranks to a core").not_in_config();
  c.opt("--threads", r.threads, thread_range(), "with --check: CPU threads of each rank")
      .unset("the machine's, split among ranks");
}

}  // namespace

void add_plan(Command& c, const CommonOptions& common) {
  const auto asked = std::make_shared<Asked>();
  PlanRequest& r = asked->request;
  c.note = "Without --check nothing runs and no device is needed: ops come from the real schedule on meta.";
  add_machine_options(c, *asked);
  add_model_options(c.options, asked->model, /*several=*/false);
  c.opt("--batch", r.total_batch, between(1, 1 << 30),
        "global micro-batch size, divided among data-parallel ranks")
      .unset("that of --batch-per-device");
  c.opt("--batch-per-device", r.batch_per_device, between(1, 1 << 20), "micro-batch size times devices");
  c.opt("--ctx,--context", r.context, between(1, 1 << 24), "sequence length");
  c.opt("--precision,--dtype", r.precision, precision_form(), "{}").offers(precision_names());
  c.opt("--recompute", r.recompute, recompute_form(),
        "activation checkpointing: none, block, every:k or nested");
  c.opt("--grad-accum", r.micro_steps, between(1, 1 << 16), "gradient accumulation: micro-steps of a step");
  c.opt("--preset", r.preset, one_of({"optimized", "baseline"}), "{}");
  c.opt("--strategy", r.strategies, "only these: ddp, zero1, zero2, fsdp, tp, pp")
      .value("NAME,...")
      .unset("all");
  c.opt("--tp", r.tensor, between(1, 1 << 16), "only so many tensor-parallel ranks a model")
      .value("N,...")
      .unset("all that divide, inside a node");
  c.opt("--pp", r.stages, between(2, 1 << 16), "only so many pipeline stages")
      .value("N,...")
      .unset("all that divide");
  c.opt("--top", r.top, between(0, 1 << 20), "rows shown; 0: all");
  add_check_options(c, *asked);
  add_page_options(c, asked->format);
  add_sweep_options(c, asked->sweep);
  c.run = [asked, &c, &common] { run_plan(*asked, c, common); };
}

}  // namespace kiln::cli
