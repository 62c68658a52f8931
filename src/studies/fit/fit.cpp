#include "studies/fit/fit.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/units.h"
#include "device/device_room.h"
#include "model/size_registry.h"
#include "studies/memory/memory_study.h"
#include "studies/step/step.h"
#include "studies/variant_check.h"
#include "train/presets.h"

namespace kiln {
namespace {

constexpr int64_t kMostBatch = 1 << 20, kMostContext = 1 << 20, kContextStep = 64;

// Those that keep little, the fastest first: where nothing is said of time, one of them is the answer.
std::vector<Recompute> small_policies(int64_t layers) {
  return {Recompute::plan({{PieceSet::all(), layers}}), Recompute::block, Recompute::nested};
}

class Fit {
 public:
  Fit(const FitRequest& request, const std::function<void(const std::string&)>& progress)
      : request_(request), progress_(progress), clock_(clock()) {
    const bool foreign = request.hardware.has_value();
    target_ = foreign ? request.hardware->kind : request.device.target;
    rank_ = options_for(foreign ? Device::meta(target_) : request.device, request.threads, request.seed);
    rank_.variants = choose_variants(request.preset, request.variants, target_).ops;
  }

  FitReport run() {
    report_.request = request_;
    find_memory();
    report_.clock = clock_.kind();
    report_.clock_from = clock_.from;
    report_.clock_note = clock_.note;
    progress_("the step as asked");
    as_asked();
    progress_("the largest batch");
    for (const bool all_kept : {true, false}) largest_batch(all_kept);
    progress_("the longest context");
    for (const bool all_kept : {true, false}) largest_context(all_kept);
    progress_("the largest model");
    for (const bool all_kept : {true, false}) largest_model(all_kept);
    if (request_.confirm) confirm();
    progress_("");
    return std::move(report_);
  }

 private:
  StepClock clock() const {
    const DType compute = policy_of(request_.precision).compute;
    return request_.hardware ? clock_of(*request_.hardware, compute)
                             : clock_of(request_.folder, request_.device, request_.threads, compute);
  }

  void find_memory() {
    report_.place = request_.hardware ? request_.hardware->title : request_.device.str();
    if (request_.memory > 0) {
      report_.memory = request_.memory;
      report_.memory_from = "--memory";
    } else if (request_.hardware) {
      report_.memory = static_cast<std::size_t>(request_.hardware->memory);
      report_.memory_from = fmt::format("memory of {}", request_.hardware->title);
    } else {
      report_.memory = free_memory_on(request_.device);
      report_.memory_from = fmt::format("free on {}", request_.device.str());
    }
  }

  StepSpec spec_of(const NamedModel& model, int64_t batch, int64_t context) const {
    StepSpec s;
    s.model = model.config;
    s.model.recompute = Recompute::none;
    choose_variants(request_.preset, request_.variants, target_).apply_to(s.model);
    s.precision = request_.precision;
    s.step.batch = batch;
    s.step.context = context;
    s.step.micro_steps = request_.micro_steps;
    s.step.graph = target_ == DeviceType::cuda && request_.preset != "baseline";
    return s;
  }

  PolicyPoint point_of(StepSpec spec, const Recompute& policy) {
    ++report_.probes;
    spec.model.recompute = policy;
    const StepPlan plan = plan_step(spec, rank_);
    return {policy, plan.memory.peak_total, clock_.seconds(plan.ops, spec.step.graph)};
  }

  // The first of the policies that fits.
  std::optional<PolicyPoint> fitting(const StepSpec& spec, bool all_kept, PolicyPoint* least = nullptr) {
    std::vector<Recompute> policies = {Recompute::none};
    if (!all_kept) {
      for (const Recompute& r : small_policies(spec.model.layers)) policies.push_back(r);
    }
    for (const Recompute& r : policies) {
      const PolicyPoint p = point_of(spec, r);
      if (p.peak <= report_.memory) return p;
      if (least != nullptr && (least->peak == 0 || p.peak < least->peak)) *least = p;
    }
    return {};
  }

  void add(FitQuestion question, bool all_kept, const std::string& size, StepSpec spec,
           const PolicyPoint& p) {
    spec.model.recompute = p.recompute;
    report_.rows.push_back({question, all_kept, size, spec, p, {}});
  }

  void as_asked() {
    const StepSpec spec = spec_of(request_.model, request_.batch, request_.context);
    const PolicyChoice choice = choose_policy(spec, rank_, report_.memory, clock_);
    report_.probes += choice.probes;
    if (choice.chosen) return add(FitQuestion::as_asked, false, request_.model.name, spec, *choice.chosen);
    PolicyPoint least;
    if (!fitting(spec_of(request_.model, 1, request_.context), false, &least)) refuse(least);
    report_.unanswered.push_back(fmt::format(
        "as asked: no recompute policy brings batch {} of {} tokens below {}; the least is {} ({} bytes), by "
        "--recompute {}",
        request_.batch, request_.context, human({report_.memory}), human({choice.least.peak}),
        choice.least.peak, name_of(choice.least.recompute)));
  }

  [[noreturn]] void refuse(const PolicyPoint& least) {
    std::string knobs;
    const auto add_knob = [&](const std::string& options, const StepSpec& spec) {
      PolicyPoint p;
      const std::optional<PolicyPoint> fits = fitting(spec, false, &p);
      knobs += fmt::format("{}{} --recompute {} takes {}", knobs.empty() ? "" : "; ", options,
                           name_of((fits ? *fits : p).recompute), human({(fits ? *fits : p).peak}));
    };
    if (request_.context > 128) add_knob("--batch 1 --ctx 128", spec_of(request_.model, 1, 128));
    if (request_.precision == Precision::fp32) {
      StepSpec narrow = spec_of(request_.model, 1, request_.context);
      narrow.precision = Precision::bf16;
      add_knob("--batch 1 --precision bf16", narrow);
    }
    largest_model(false);
    if (!report_.rows.empty())
      knobs +=
          fmt::format("{}--size {} fits with batch {} and --recompute {}", knobs.empty() ? "" : "; ",
                      report_.rows.back().size, request_.batch, name_of(report_.rows.back().point.recompute));
    throw Error(
        fmt::format("{} does not fit into {}: one sequence of {} tokens takes at least {} ({} bytes), by "
                    "--batch 1 --recompute {}",
                    request_.model.name, human({report_.memory}), request_.context, human({least.peak}),
                    least.peak, name_of(least.recompute)),
        knobs.empty() ? "take more --memory or a smaller --size" : knobs);
  }

  // The largest number of `unit`s up to `most` for which `at` fits; nothing where not even one does.
  void largest(FitQuestion question, bool all_kept, int64_t asked, int64_t most, int64_t unit,
               const std::function<StepSpec(int64_t)>& at) {
    std::optional<PolicyPoint> best;
    int64_t fits = 0, too_much = most + 1;
    const auto probe = [&](int64_t n) {
      const std::optional<PolicyPoint> p = fitting(at(n * unit), all_kept);
      if (p) best = p;
      (p ? fits : too_much) = n;
    };
    for (int64_t n = std::max<int64_t>(1, asked / unit); n < too_much;) {
      probe(n);
      if (fits == n) n = n == most ? too_much : std::min(2 * n, most);
    }
    while (too_much - fits > 1) probe(fits + (too_much - fits) / 2);
    if (best) return add(question, all_kept, request_.model.name, at(fits * unit), *best);
    report_.unanswered.push_back(fmt::format("{}{}: nothing fits into {}", name_of(question),
                                             all_kept ? ", everything kept" : "", human({report_.memory})));
  }

  void largest_batch(bool all_kept) {
    largest(FitQuestion::batch, all_kept, request_.batch, kMostBatch, 1,
            [&](int64_t n) { return spec_of(request_.model, n, request_.context); });
  }

  void largest_context(bool all_kept) {
    largest(FitQuestion::context, all_kept, request_.context, kMostContext / kContextStep, kContextStep,
            [&](int64_t n) { return spec_of(request_.model, request_.batch, n); });
  }

  void largest_model(bool all_kept) {
    std::vector<NamedModel> models;
    for (const ModelSize& s : model_sizes()) {
      if (s.kind == SizeKind::llama) models.emplace_back(s);
    }
    std::stable_sort(models.begin(), models.end(), [](const NamedModel& a, const NamedModel& b) {
      return param_count(a) > param_count(b);
    });
    for (const NamedModel& m : models) {
      const StepSpec spec = spec_of(m, request_.batch, request_.context);
      if (floor_bytes(spec) > report_.memory) continue;  // its weights alone are too many
      if (const std::optional<PolicyPoint> p = fitting(spec, all_kept))
        return add(FitQuestion::model, all_kept, m.name, spec, *p);
    }
    report_.unanswered.push_back(fmt::format("{}{}: no model known by name fits", name_of(FitQuestion::model),
                                             all_kept ? ", everything kept" : ""));
  }

  void confirm() {
    if (report_.rows.empty()) return;
    FitRow& row = report_.rows.front();
    const std::size_t free_memory = free_memory_on(request_.device);
    if (row.point.peak > free_memory)
      throw Error(fmt::format("--confirm: the answer takes {}, and {} are free on {}",
                              human({row.point.peak}), human({free_memory}), request_.device.str()),
                  "leave --confirm out, or ask for less --memory");
    progress_("running it");
    row.measured = trace_step(row.spec, rank_).stats;
  }

  const FitRequest& request_;
  const std::function<void(const std::string&)>& progress_;
  StepClock clock_;
  DeviceType target_ = DeviceType::cpu;
  RankOptions rank_;
  FitReport report_;
};

}  // namespace

std::string_view name_of(FitQuestion q) {
  constexpr std::array<std::string_view, 4> kNames = {"as asked", "largest batch", "longest context",
                                                      "largest model"};
  return kNames[static_cast<std::size_t>(q)];
}

FitReport fit(const FitRequest& request, const std::function<void(const std::string&)>& progress) {
  if (request.confirm && (request.hardware || request.device.is_meta()))
    throw Error(fmt::format("--confirm runs the step, and {} is not here",
                            request.hardware ? request.hardware->title : "meta"),
                "leave --confirm out, or leave out --hw", ErrorKind::usage);
  return Fit(request, progress).run();
}

}  // namespace kiln
