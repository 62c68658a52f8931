// kiln doctor: what this machine offers, its problems, and what to do about them.
#include <cstdio>
#include <memory>

#include "device/require_gpu.h"
#include "kiln/command.h"
#include "studies/doctor/collectives.h"
#include "studies/doctor/render.h"

namespace kiln::cli {
namespace {

struct Asked {
  bool quick = false, collectives = false;
};

void run_doctor(const Asked& asked, const CommonOptions& common) {
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
  c.run = [asked, &common] { run_doctor(*asked, common); };
}

}  // namespace kiln::cli
