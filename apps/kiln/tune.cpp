#include "kiln/tune.h"

#include <filesystem>

#include "base/atomic_file.h"
#include "base/build_info.h"
#include "base/error.h"
#include "kiln/bench_check.h"
#include "kiln/tuned.h"
#include "perf/step_run.h"
#include "train/presets.h"

namespace kiln::cli {
namespace {

namespace fs = std::filesystem;

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

// What the file holds already, where that still counts.
TuneFile earlier_choices(const std::string& path, const TunePlace& here, const TuneNote& say) {
  TuneFile none{here, build_info().build_id, {}};
  if (!fs::exists(path)) return none;
  TuneFile file = read_tune_file(path);
  const std::string why = why_not_here(file, here, path);
  if (why.empty()) return file;
  say(cat(why, ": its ", file.choices.size(), " choices are replaced"));
  return none;
}

// Is there a place for the result? Better said now than after minutes.
void check_writable(const std::string& path) {
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  if (error)
    throw Error(cat("cannot make the folder of ", path, ": ", error.message()),
                "name a folder that can be written with --out");
  const AtomicFile probe(path);
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
  report.file = ((out.empty() ? fs::path(".") : fs::path(out)) / tune_file_name(here->gpu)).string();
  check_writable(report.file);
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
