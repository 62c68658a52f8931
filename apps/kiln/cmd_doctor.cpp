// kiln doctor: what this machine offers, its problems, and what to do about them.
#include <cstdio>
#include <memory>

#include "base/error.h"
#include "device/require_gpu.h"
#include "kiln/bench_options.h"
#include "kiln/command.h"
#include "kiln/console/progress.h"
#include "kiln/console/stop_on_signals.h"
#include "rows/result_log.h"
#include "studies/calibrate/calibrate.h"
#include "studies/doctor/collectives.h"
#include "studies/doctor/render.h"

namespace kiln::cli {
namespace {

struct Asked {
  bool quick = false, collectives = false, calibrate = false;
  CalibrateRequest calibration;
};

// The file of before stays where this is broken off.
void run_calibration(const Asked& asked, const CommonOptions& common) {
  CalibrateRequest request = asked.calibration;
  request.device = device_here(common);
  request.seed = common.seed;
  prepare_results(common.out);
  CalibrateReport report;
  {
    const StopOnSignals signals;
    const BenchProgress progress;
    request.stop = [] { return stop_requested().load(); };
    report = calibrate(request, [&](const std::string& text) { progress(text); });
  }
  if (report.stopped)
    throw Error("interrupted: nothing was calibrated", "run it again; it takes about a minute");
  report.path = write_calibration(common.out, report);
  std::fputs(
      written(calibrate_page(report, common.wide), common.json ? PageFormat::json : PageFormat::text).c_str(),
      stdout);
}

void run_doctor(const Asked& asked, const CommonOptions& common) {
  if (asked.calibrate) return run_calibration(asked, common);
  if (asked.collectives) return run_doctor_collectives(common.device, common.seed, common.json);
  const DoctorFacts facts = examine_machine(!asked.quick);
  const std::string text = common.json ? facts_json(facts).dump(2) + "\n" : facts_text(facts);
  std::fputs(text.c_str(), stdout);
  // `--device cuda` asks whether that GPU is there: the report comes first, the answer is the exit status.
  require_gpu(common.device, facts.gpus, facts.why_no_gpu);
}

}  // namespace

void add_doctor(Command& c, const CommonOptions& common) {
  auto asked = std::make_shared<Asked>();
  c.opt("--quick", asked->quick, "no measurement of copy, FMA and GEMM rates");
  c.opt("--collectives", asked->collectives,
        "only check every collective between the ranks started by `kiln run`");
  c.opt("--calibrate", asked->calibrate,
        "measure what predictions need, in about a minute, into a hardware file in --out");
  c.opt("--seconds", asked->calibration.seconds, between(1.0, 3600.0), "of --calibrate: for timed steps");
  c.opt("--threads", asked->calibration.threads, thread_range(), "of --calibrate: CPU threads").unset("all");
  c.run = [asked, &common] { run_doctor(*asked, common); };
}

}  // namespace kiln::cli
