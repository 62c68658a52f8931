// kiln calc flops, time, memory, checkpoint, residual-stream, dp, fsdp, tp, 2d, xxl: figures on paper.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "base/error.h"
#include "dist/strategy/strategies.h"
#include "kiln/bench_options.h"
#include "kiln/command.h"
#include "ops/renamed.h"
#include "perf/model/machine.h"
#include "rows/result_log.h"
#include "studies/calc/measured_step.h"
#include "studies/calc/memory_chapter.h"
#include "studies/calc/parallel_ffn.h"
#include "studies/calc/step_theory.h"

namespace kiln::cli {
namespace {

constexpr NamedValue<FlopsConvention> kConventions[] = {{"causal", FlopsConvention::causal},
                                                        {"dense", FlopsConvention::dense}};

struct StepAsked {
  StepTheoryRequest request;
  ModelOptions model = {.sizes = {"small"}};
  std::string hardware;
  double launch_us = 0;
  PageFormat format = PageFormat::text;
};

void show(const StudyPage& page, PageFormat format) { std::fputs(written(page, format).c_str(), stdout); }

std::string hardware_help(const char* what) {
  return fmt::format("{}: {}, here, or a hardware file", what, joined(hardware_names()));
}

// `here`: this machine, as `kiln doctor --calibrate` found it.
Hardware hardware_named(const std::string& name, const CommonOptions& common) {
  if (name != "here") return find_hardware(name);
  KnownMachine known = known_machine(common.out, machine_of(Device::parse(common.device), 0));
  if (!known.hardware) throw Error(known.note, "name a device: --hw h200", ErrorKind::unavailable);
  if (!known.note.empty()) fmt::print(stderr, "kiln: {}\n", known.note);
  return *known.hardware;
}

// --- of a step

void add_step_options(Command& c, StepAsked& asked) {
  StepTheoryRequest& r = asked.request;
  add_model_options(c.options, asked.model, /*several=*/false);
  add_one_step(c.options, {r.batch, r.context, r.micro_steps, r.precision, r.mode, r.preset});
  c.opt("--variant", r.variants, "op variants on top of the preset: attention=naive,qkv=split,...")
      .value("OP=NAME,...")
      .unset("none")
      .was_values(former_names_in);
  c.opt("--recompute", r.recompute, recompute_form(), kRecomputeHelp);
  c.opt("--hw", asked.hardware, hardware_help("device")).unset("variants of a GPU");
  add_page_options(c, asked.format);
}

// Variants are a GPU's unless the hardware is a CPU, or --device says so.
StepTheoryRequest finished(const StepAsked& asked, const CommonOptions& common) {
  StepTheoryRequest q = asked.request;
  q.model = model_of(asked.model);
  q.seed = common.seed;
  q.hardware.kind = common.device == "cpu" || common.device == "meta" ? DeviceType::cpu : DeviceType::cuda;
  if (!asked.hardware.empty()) q.hardware = hardware_named(asked.hardware, common);
  q.launch = 1e-6 * asked.launch_us;
  q.resolve_policy();
  return q;
}

Command& sub_of(Command& calc, const char* name, const char* summary, const char* example) {
  Command& c = calc.sub(name, summary, example);
  c.note = "Nothing is measured and no device is needed.";
  return c;
}

void add_flops(Command& calc, const CommonOptions& common) {
  const auto asked = std::make_shared<StepAsked>();
  Command& c = sub_of(calc, "flops", "operations of a step, op by op and by the formula",
                      "kiln calc flops --size small --ctx 1024 --recompute block");
  add_step_options(c, *asked);
  c.opt("--convention", asked->request.convention, kConventions,
        "pairs of attention: causal (those the mask leaves) or dense");
  c.run = [asked, &c, &common] {
    const PageFormat format = page_format(c, asked->format, common);
    show(flops_page(step_theory(finished(*asked, common)), common.wide), format);
  };
}

void add_time(Command& calc, const CommonOptions& common) {
  const auto asked = std::make_shared<StepAsked>();
  asked->hardware = "h200";
  Command& c = sub_of(calc, "time", "roofline of a step on a device, op by op",
                      "kiln calc time --size small --hw h100");
  add_step_options(c, *asked);
  c.opt("--launch-us", asked->launch_us, between(0.0, 1e6),
        "cost of each op call beside its roofline, microseconds");
  c.run = [asked, &c, &common] {
    const PageFormat format = page_format(c, asked->format, common);
    const StepTheory theory = step_theory(finished(*asked, common));
    StudyPage page = time_page(theory, common.wide);
    add_measured_step(page, theory.request, read_results(common.out).rows);
    show(page, format);
  };
}

bool is_ffn_only(const StepAsked& asked) {
  const std::vector<std::string>& sizes = asked.model.sizes;
  return sizes.size() == 1 && asked.model.model.empty() &&
         find_model_size(sizes.front()).kind == SizeKind::ffn_only;
}

XxlRequest xxl_of(const ModelSize& size) {
  XxlRequest q;
  q.d_model = static_cast<double>(size.d_model);
  q.d_ff = static_cast<double>(size.d_ff);
  q.layers = static_cast<double>(size.layers);
  return q;
}

void add_memory_theory(Command& calc, const CommonOptions& common) {
  const auto asked = std::make_shared<StepAsked>();
  StepTheoryRequest& r = asked->request;
  Command& c =
      sub_of(calc, "memory", "memory of a step by purpose, for any strategy and rank",
             "kiln calc memory --size xl26 --ctx 2048 --batch 4 --precision fp32 --strategy fsdp --ranks 4");
  add_step_options(c, *asked);
  c.opt("--strategy", r.strategy, strategy_names(), "how ranks share the step").value("NAME");
  c.opt("--ranks", r.ranks, between(1, 1 << 16), "ranks that share it; --batch is each rank's");
  c.run = [asked, &c, &common] {
    const PageFormat format = page_format(c, asked->format, common);
    if (is_ffn_only(*asked)) {  // it has no attention to run: by formula
      const Calculation xxl = calc_xxl(xxl_of(find_model_size(asked->model.sizes.front())));
      return show(derivation_page("calc memory", xxl.title, xxl.derivation, xxl.answers, common.wide),
                  format);
    }
    const MemoryTheory theory = memory_theory(finished(*asked, common));
    StudyPage page = memory_theory_page(theory, common.wide);
    add_measured_step(page, theory.request, read_results(common.out).rows);
    show(page, format);
  };
}

void add_checkpoint(Command& calc, const CommonOptions& common) {
  const auto asked = std::make_shared<StepAsked>();
  Command& c = sub_of(calc, "checkpoint", "memory and operations of every kind of activation checkpointing",
                      "kiln calc checkpoint --size xl26 --ctx 2048 --batch 4 --precision fp32");
  add_step_options(c, *asked);
  c.run = [asked, &c, &common] {
    const PageFormat format = page_format(c, asked->format, common);
    show(checkpoint_page(finished(*asked, common), common.wide), format);
  };
}

// --- derivations

using Calculate = std::function<Calculation()>;

void run_as_derivation(Command& c, const CommonOptions& common,
                       const std::shared_ptr<PageFormat>& asked_format, const std::string& command,
                       const Calculate& calculate) {
  add_page_options(c, *asked_format);
  c.run = [=, &c, &common] {
    const PageFormat format = page_format(c, *asked_format, common);
    const Calculation result = calculate();
    show(derivation_page(command, result.title, result.derivation, result.answers, common.wide), format);
  };
}

void add_residual_stream(Command& calc, const CommonOptions& common) {
  struct Asked {
    ModelOptions model = {.sizes = {"small"}};
    int64_t batch = 4, context = 512;
    Precision precision = Precision::fp32;
  };
  const auto asked = std::make_shared<Asked>();
  Command& c = sub_of(calc, "residual-stream", "memory of one tensor of the residual stream",
                      "kiln calc residual-stream --size xl26 --batch 4 --ctx 512");
  add_model_options(c.options, asked->model, /*several=*/false);
  c.opt("--batch", asked->batch, between(1, 1 << 20), "micro-batch size");
  c.opt("--ctx,--context", asked->context, between(1, 1 << 24), "sequence length");
  c.opt("--precision,--dtype", asked->precision, precision_form(), "fp32, bf16, autocast, pure-bf16 or fp16");
  run_as_derivation(
      c, common, std::make_shared<PageFormat>(PageFormat::text), "calc residual-stream", [asked] {
        const NamedModel model = model_of(asked->model);
        return calc_residual_stream({.batch = static_cast<double>(asked->batch),
                                     .context = static_cast<double>(asked->context),
                                     .d_model = static_cast<double>(model.config.d_model),
                                     .bytes = static_cast<double>(size_of(policy_of(asked->precision).value)),
                                     .size = model.name});
      });
}

struct FfnAsked {
  std::string size, hardware = "h100";
  int64_t tokens = 32768;
  std::optional<int64_t> d_model, d_ff;
  std::optional<double> flops, bandwidth;  // TFLOP/s, GB/s
  FfnRequest request;
};

FfnRequest finished(const FfnAsked& asked) {
  FfnRequest q = asked.request;
  const ModelSize& size = find_model_size(asked.size);
  q.tokens = static_cast<double>(asked.tokens);
  q.d_model = static_cast<double>(asked.d_model.value_or(size.d_model));
  q.d_ff = static_cast<double>(asked.d_ff.value_or(size.d_ff));
  q.hardware = asked.flops && asked.bandwidth ? "" : asked.hardware;
  const bool needs_file = !asked.flops || !asked.bandwidth;
  const Hardware h = needs_file ? find_hardware(asked.hardware) : Hardware();
  if (!asked.bandwidth && !h.link)
    throw Error(fmt::format("hardware {} says nothing of a link", h.name), "give --bandwidth",
                ErrorKind::usage);
  q.flops = asked.flops ? 1e12 * *asked.flops : h.flops_of("bf16");
  q.bandwidth = asked.bandwidth ? 1e9 * *asked.bandwidth : h.link->bytes_per_s;
  return q;
}

struct FfnSubject {
  const char *name, *summary, *example;
  Calculation (*calculate)(const FfnRequest&);
};

void add_ffn(Command& calc, const CommonOptions& common, const FfnSubject& subject) {
  const auto asked = std::make_shared<FfnAsked>();
  asked->size = "10b";
  Command& c = sub_of(calc, subject.name, subject.summary, subject.example);
  c.opt("--size", asked->size, "whose widths: a name of `kiln sizes`");
  c.opt("--d-model", asked->d_model, between<int64_t>(1, 1 << 24), "model width").unset("the size's");
  c.opt("--d-ff", asked->d_ff, between<int64_t>(1, 1 << 26), "feed-forward width").unset("the size's");
  c.opt("--tokens", asked->tokens, between<int64_t>(1, int64_t{1} << 40), "tokens of a step, of all devices");
  c.opt("--devices", asked->request.devices, between(1, 1 << 20), "devices");
  if (std::string_view(subject.name) == "2d") {
    c.opt("--fsdp", asked->request.fsdp, between(1, 1 << 20), "devices by FSDP; with --tp")
        .unset("the best split");
    c.opt("--tp", asked->request.tp, between(1, 1 << 20), "devices tensor-parallel; with --fsdp")
        .unset("the best split");
  }
  c.opt("--hw", asked->hardware, hardware_help("device"));
  c.opt("--tflops", asked->flops, between(1e-6, 1e9), "matmul rate of a device, TFLOP/s")
      .unset("the hardware's");
  c.opt("--bandwidth", asked->bandwidth, between(1e-6, 1e9), "of a device to the others, GB/s")
      .unset("the hardware's");
  run_as_derivation(c, common, std::make_shared<PageFormat>(PageFormat::text),
                    fmt::format("calc {}", subject.name),
                    [asked, calculate = subject.calculate, name = std::string(subject.name)] {
                      Calculation result = calculate(finished(*asked));
                      if (name != "tp") return result;
                      for (const auto* equations : {&tp_forward_equations(), &tp_backward_equations()})
                        for (const std::string& line : *equations) result.answers.push_back(line);
                      return result;
                    });
}

void add_xxl(Command& calc, const CommonOptions& common) {
  struct Asked {
    XxlRequest request = xxl_of(find_model_size("xxl"));
    double tflops = 460, bandwidth = 180, device_gb = 80, sharded_gb = 95;
  };
  const auto asked = std::make_shared<Asked>();
  Command& c = sub_of(calc, "xxl", "a model far larger than a device, sharded in four dimensions",
                      "kiln calc xxl --fsdp 32 --tp 8");
  XxlRequest& r = asked->request;
  c.opt("--layers", r.layers, between(1.0, 1e6), "blocks");
  c.opt("--d-model", r.d_model, between(1.0, 1e8), "model width");
  c.opt("--d-ff", r.d_ff, between(1.0, 1e8), "feed-forward width");
  c.opt("--tokens", r.tokens, between(0.0, 1e12), "tokens of a device whose activations are kept");
  c.opt("--fsdp", r.fsdp, between(1.0, 1e6), "devices by FSDP");
  c.opt("--tp", r.tp, between(1.0, 1e6), "devices tensor-parallel");
  c.opt("--tflops", asked->tflops, between(1e-6, 1e9), "matmul rate of a device, TFLOP/s");
  c.opt("--bandwidth", asked->bandwidth, between(1e-6, 1e9),
        "of one axis of the torus, both directions, GB/s");
  c.opt("--device-gb", asked->device_gb, between(1e-3, 1e6),
        "memory of a device that holds the state, 10^9 bytes");
  c.opt("--sharded-gb", asked->sharded_gb, between(1e-3, 1e6),
        "memory of a device it is sharded over, 10^9 bytes");
  run_as_derivation(c, common, std::make_shared<PageFormat>(PageFormat::text), "calc xxl", [asked] {
    XxlRequest q = asked->request;
    q.flops = 1e12 * asked->tflops;
    q.bandwidth = 1e9 * asked->bandwidth;
    q.device_bytes = 1e9 * asked->device_gb;
    q.sharded_bytes = 1e9 * asked->sharded_gb;
    return calc_xxl(q);
  });
}

constexpr FfnSubject kFfnSubjects[] = {
    {"dp", "data parallelism: operations, communication, most devices",
     "kiln calc dp --size 10b --devices 64 --hw h100", calc_dp},
    {"fsdp", "FSDP: operations, communication, most devices",
     "kiln calc fsdp --size 10b --devices 64 --hw h100", calc_fsdp},
    {"tp", "tensor parallelism: operations, communication, most devices",
     "kiln calc tp --size 10b --devices 8 --hw h100", calc_tp},
    {"2d", "FSDP and tensor parallelism at once: the best split",
     "kiln calc 2d --size 10b --devices 64 --hw h100", calc_2d},
};

}  // namespace

void add_calc_theory(Command& calc, const CommonOptions& common) {
  add_flops(calc, common);
  add_memory_theory(calc, common);
  add_time(calc, common);
  add_checkpoint(calc, common);
  add_residual_stream(calc, common);
  for (const FfnSubject& subject : kFfnSubjects) add_ffn(calc, common, subject);
  add_xxl(calc, common);
}

}  // namespace kiln::cli
