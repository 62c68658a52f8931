// kiln study: the sweeps of a whole course, one after another, into one folder. kiln all: those of both, and
// all around them.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/error.h"
#include "kiln/bench_options.h"
#include "kiln/command.h"
#include "kiln/console/stop_on_signals.h"
#include "studies/course/everything.h"
#include "studies/course/render.h"
#include "studies/shared_ceilings.h"

namespace kiln::cli {
namespace {

constexpr NamedValue<ScaleChoice> kScales[] = {
    {"auto", ScaleChoice::automatic}, {"full", ScaleChoice::full}, {"tiny", ScaleChoice::tiny}};

struct Asked {
  StudyRequest request;
  StudyChoice choice;
  bool list = false;
};

void report_failures(const StudyReport& report) {
  const bool any_done = std::any_of(report.parts.begin(), report.parts.end(),
                                    [](const PartReport& p) { return p.asked && p.status == RowStatus::ok; });
  for (const PartReport& p : report.parts) {
    if (!p.asked) continue;
    if (p.status == RowStatus::failed || p.status == RowStatus::timeout)
      throw Error(fmt::format("{}: {}", p.part.name, p.reason), "the other parts are kept; run it again");
    if (p.status == RowStatus::unavailable && !any_done)
      throw Error(fmt::format("{}: {}", p.part.name, p.reason), {}, ErrorKind::unavailable);
  }
}

void run(Asked& asked, const CommonOptions& common) {
  StudyRequest& request = asked.request;
  request.out = common.out;
  request.seed = fmt::format("{}", common.seed);
  choose_parts(asked.choice, request);
  choose_place(asked.choice, common.device, request);
  if (asked.list) {
    std::fputs((common.json ? study_list_json(request) : study_list_text(request)).c_str(), stdout);
    return;
  }
  const auto stop = [] { return stop_requested().load(); };
  StudyReport report;
  {
    const SharedCeilings shared;
    const StopOnSignals signals;
    report = run_study(request, {[&](const std::vector<std::string>& args, const std::string& folder) {
                                   return run_part(args, folder, request.timeout, stop);
                                 },
                                 [](const std::string& line) {
                                   if (!line.empty()) fmt::print(stderr, "{}\n", line);
                                 },
                                 stop});
  }
  const PageFormat format = common.json ? PageFormat::json : PageFormat::text;
  print_page(study_page(report, common.wide), format, common.wide);
  report_failures(report);
}

void run_all(EverythingRequest& request, bool list, const CommonOptions& common) {
  request.out = common.out;
  request.device = common.device;
  request.seed = fmt::format("{}", common.seed);
  request.stop = [] { return stop_requested().load(); };
  std::vector<EverythingStep> steps;
  if (list) {
    steps = plan_everything(request);
    std::fputs((common.json ? everything_json(request, steps).dump(2) + "\n" : plan_text(steps)).c_str(),
               stdout);
    return;
  }
  {
    const StopOnSignals signals;
    steps = do_everything(request, [](const std::string& line) { fmt::print(stderr, "{}\n", line); });
  }
  fmt::print("{}",
             common.json ? everything_json(request, steps).dump(2) + "\n" : everything_text(request, steps));
  for (const EverythingStep& s : steps)
    if (s.outcome == StepOutcome::failed)
      throw Error(fmt::format("{}: {}", s.name, s.reason), "what is done is kept; run it again");
}

}  // namespace

void add_all(Command& c, const CommonOptions& common) {
  auto request = std::make_shared<EverythingRequest>();
  auto list = std::make_shared<bool>(false);
  c.opt("--list", *list, "list the command lines and run nothing").not_in_config();
  c.opt("--quick", request->quick, "minutes: small models and few steps, no tests of the build tree");
  c.opt("--fresh", request->fresh, "do again what is done").not_in_config();
  c.opt("--step-timeout", request->timeout, between(0.0, 1e7), "time limit of a step, seconds; 0: none");
  c.run = [request, list, &common] { run_all(*request, *list, common); };
}

void add_study(Command& c, const CommonOptions& common) {
  auto asked = std::make_shared<Asked>();
  StudyChoice& choice = asked->choice;
  c.opt("NAME", choice.study, "2025 or 2026");
  c.opt("--scale", choice.scale, kScales,
        "full, tiny: smaller models and fewer steps, or auto: tiny on the CPU");
  c.opt("--list", asked->list, "list the command lines and run nothing").not_in_config();
  c.opt("--only", choice.only, "parts to run, by name").value("PART,...").unset("all");
  c.opt("--command", choice.command, "parts of one command; `kiln bench step --study 2025` is the same")
      .value("'bench step'");
  c.opt("--part-timeout", asked->request.timeout, between(0.001, 1e7), "time limit of a part, seconds");
  c.opt("--fresh", asked->request.fresh, "run finished parts again");
  c.run = [asked, &common] { run(*asked, common); };
}

}  // namespace kiln::cli
