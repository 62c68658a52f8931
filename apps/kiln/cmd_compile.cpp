// kiln compile: a model's regions between matmuls, and the kernels that they are compiled to.
#include <memory>

#include "base/choice.h"
#include "base/error.h"
#include "compile/cache.h"
#include "kiln/bench_options.h"
#include "kiln/command.h"
#include "studies/compile/compile_study.h"

namespace kiln::cli {
namespace {

constexpr NamedValue<CompileShow> kShow[] = {
    {"attention", CompileShow::attention}, {"block", CompileShow::block}, {"model", CompileShow::model}};

struct Asked {
  CompileRequest request;
  ModelOptions model = {.sizes = {"small"}};
  bool no_measure = false;
  PageFormat format = PageFormat::text;
};

void run_compile(Asked& asked, const Command& command, const CommonOptions& common) {
  CompileRequest& r = asked.request;
  r.size = model_of(asked.model);
  check_config(r.size.config);
  r.measure = !asked.no_measure && device_here(common).type == DeviceType::cpu;
  r.seed = common.seed;
  if (r.cache.empty()) r.cache = compile::KernelCache::default_folder();
  const PageFormat format = page_format(command, asked.format, common);
  const CompileReport report = compile_study(r);
  print_page(compile_page(report), format, common.wide);
  if (report.checked.gate_failed())
    throw Error(cat("the kernels were not timed: ", report.checked.reason), "run `make test`");
}

}  // namespace

void add_compile(Command& c, const CommonOptions& common) {
  auto asked = std::make_shared<Asked>();
  CompileRequest& r = asked->request;
  c.note = "CUDA sources are written and compiled without a GPU; kernels run on the CPU.";
  c.opt("--show", r.show, kShow,
        "attention (its softmax, between its matmuls), block, or model (with its loss)");
  add_model_options(c.options, asked->model, /*several=*/false);
  c.opt("--batch", r.batch, between(1, 1 << 20), "micro-batch size");
  c.opt("--ctx,--context", r.context, between(1, 1 << 24), "sequence length");
  c.opt("--precision,--dtype", r.precision, precision_form(), "{}").offers(precision_names());
  c.opt("--graph", r.graph, "also the graph of each region, a value a line");
  c.opt("--source", r.source, "also the CUDA source of each region");
  c.opt("--arch", r.arch, "compile the CUDA sources for it with NVRTC: sm_90a, sm_80")
      .value("NAME")
      .unset("no");
  c.opt("--cache", r.cache, "folder of compiled kernels")
      .value("FOLDER")
      .unset("KILN_KERNEL_CACHE, or kiln/kernels in the user's cache");
  c.opt("--no-measure", asked->no_measure, "plan only: run no kernel here");
  c.opt("--threads", r.threads, thread_range(), "CPU threads").unset("all");
  add_page_options(c, asked->format);
  c.run = [asked, &c, &common] { run_compile(*asked, c, common); };
}

}  // namespace kiln::cli
