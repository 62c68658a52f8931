#include "studies/tune/tune.h"

#include "base/build_info.h"
#include "base/error.h"
#include "studies/gate/gate.h"
#include "studies/step/step.h"
#include "studies/step/step_policy.h"
#include "studies/variant_check.h"
#include "train/presets.h"
#include "train/run/tuned.h"

namespace kiln {
namespace {

constexpr int kSteps = 2;  // the second sees what only a step after another has

struct Totals {
  double before = 0, after = 0;
};

Totals totals_of(const std::vector<MatmulChoice>& products) {
  Totals t;
  for (const MatmulChoice& p : products) {
    t.before += static_cast<double>(p.calls) * p.default_us;
    t.after += static_cast<double>(p.calls) * p.us;
  }
  return t;
}

// Eager: a replayed graph calls no library.
StepSpec spec_of(const TuneRequest& r, const TunedStep& step) {
  StepSpec spec;
  spec.model = config_of(step.size);
  spec.model.recompute = r.recompute;
  choose_variants("optimized", r.variants, r.device.target).apply_to(spec.model);
  check_config(spec.model);
  spec.precision = step.precision;
  spec.step.batch = r.batch;
  spec.step.context = step.context;
  spec.step.micro_steps = r.micro_steps;
  spec.step.graph = false;
  return spec;
}

void tune_step(const TuneRequest& r, StepGate& gate, TunedStep& step, const TuneNote& progress) {
  const std::string name = cat(step.size.name, " ", name_of(step.precision), " ctx ", step.context);
  progress(cat(name, ": one step"));
  RankOptions options = options_for(r.device, 0, r.seed);
  options.variants = choose_variants("optimized", r.variants, r.device.target).ops;
  StepSpec spec = spec_of(r, step);
  if (const std::string policy = resolve_policy(spec, options, ""); !policy.empty()) progress(policy);
  if (const GateReport right = gate.check({spec, options, plan_step(spec, options).ops}); !right.passed())
    throw Error(cat(name, ": the step does not pass its check, and was not tuned: ", right.reason));
  RankContext ctx(options);
  {
    SyntheticStep run(ctx, spec);
    for (int i = 0; i < kSteps; ++i) run.run();
    run.finish();
  }
  ctx.allocator().release_cached();  // the measurement takes memory of its own
  step.products = ctx.backend().tune_matmuls([&](std::size_t done, std::size_t all, std::string_view p) {
    progress(cat(name, ": GEMM ", done + 1, " of ", all, ", ", readable_problem(std::string(p))));
  });
  for (MatmulChoice& c : step.products) c.calls /= kSteps;
}

}  // namespace

double TunedStep::default_us() const { return totals_of(products).before; }
double TunedStep::tuned_us() const { return totals_of(products).after; }

std::string readable_problem(const std::string& problem) {
  return problem.substr(0, problem.find(" strides "));
}

TuneReport tune(const TuneRequest& r, const std::string& out, const TuneNote& progress, const TuneNote& say) {
  const auto here = tune_place(r.device);
  if (!here)
    throw Error(cat("nothing to tune on ", r.device.str(), ": its matmuls are kiln's own"),
                "on a GPU they are a library's: use --device cuda", ErrorKind::unavailable);
  TuneReport report;
  report.place = *here;
  for (const NamedModel& size : r.sizes) {
    for (const int64_t context : r.contexts) {
      for (const Precision precision : r.precisions) {
        report.steps.push_back({size, context, precision, {}});
        (void)spec_of(r, report.steps.back());  // throws for a step that cannot be
      }
    }
  }
  report.file = tune_path(out, *here);
  check_tune_path(report.file);
  TuneFile file = earlier_choices(report.file, *here, say);
  const LoadWatch load(r.device);
  StepGate gate(out, progress);
  for (TunedStep& step : report.steps) {
    tune_step(r, gate, step, progress);
    file = merged(file, {*here, build_info().build_id, step.products});
    write_tune_file(report.file, file);  // after each: what was measured is kept whatever comes next
  }
  progress("");
  report.load = load.load();
  report.choices = file.choices.size();
  return report;
}

}  // namespace kiln
