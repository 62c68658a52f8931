#include "studies/tune/tune.h"

#include "base/build_info.h"
#include "base/error.h"
#include "kiln/bench_check.h"
#include "train/run/tuned.h"
#include "studies/step/synthetic_step.h"
#include "train/presets.h"

namespace kiln::cli {
namespace {

constexpr int kSteps = 2;  // the second meets what only a step after another does

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

void tune_step(const TuneRequest& r, TunedStep& step, const TuneNote& progress) {
  const std::string name = cat(step.size.name, " ", name_of(step.precision), " ctx ", step.context);
  progress(cat(name, ": one step"));
  RankOptions options = options_for(r.device, 0, r.seed);
  options.variants = choose_variants("optimized", r.variants, r.device.target).ops;
  RankContext ctx(options);
  {
    StepRun run(ctx, spec_of(r, step));
    for (int i = 0; i < kSteps; ++i) run.run();
    run.finish();
  }
  ctx.allocator().release_cached();  // the measurement takes memory of its own
  step.products = ctx.backend().tune_matmuls([&](std::size_t done, std::size_t all, std::string_view p) {
    progress(cat(name, ": product ", done + 1, " of ", all, ", ", readable_problem(std::string(p))));
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
    throw Error(cat("nothing to tune on ", r.device.str(), ": its matrix products are kiln's own"),
                "on a GPU they are a library's: use --device cuda", ErrorKind::unavailable);
  TuneReport report;
  report.place = *here;
  for (const ModelSize& size : r.sizes) {
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
  for (TunedStep& step : report.steps) {
    tune_step(r, step, progress);
    file = merged(file, {*here, build_info().build_id, step.products});
    write_tune_file(report.file, file);  // after each: what was measured is kept whatever comes next
  }
  progress("");
  report.choices = file.choices.size();
  return report;
}

}  // namespace kiln::cli
