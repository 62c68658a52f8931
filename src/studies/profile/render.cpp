#include "studies/profile/render.h"

#include <fmt/format.h>

#include "studies/format.h"

namespace kiln {
namespace {

std::string title(const StepProfile& p) {
  const StepOptions& step = p.spec.step;
  return fmt::format("{}, batch {}, ctx {}, {}, {}{}{}{}", p.size.name, step.batch, step.context,
                     name_of(p.spec.precision), p.preset, p.variants.empty() ? "" : "," + p.variants,
                     step.micro_steps > 1 ? fmt::format(", {} micro-steps", step.micro_steps) : "",
                     p.captured ? ", replayed as graphs" : "");
}

}  // namespace

StudyPage profile_page(const ProfileReport& report, bool wide) {
  StudyPage page;
  page.place = wrapped(
      place_line(report.device, report.device_name, report.threads, report.isa, report.copy, report.flops));
  page.columns = step_profile_columns();
  page.shown.wide = wide;
  std::vector<Json> traced, others;
  for (const StepProfile& p : report.steps) {
    const Json row = step_json(report, p);
    page.rows.push_back(row);
    (p.traced() ? traced : others).push_back(row);
    StudyPage& part = page.parts.emplace_back();
    part.title = title(p);
    if (!p.policy.empty()) part.notes.push_back(p.policy);
    if (p.traced())
      part.tables = profile_sections(report, p, row);
    else
      part.notes.push_back(
          fmt::format("{}: {}", p.status == RowStatus::oom ? "OOM" : name_of(p.status), p.reason));
  }
  add_load_note(report, page.notes);
  page.json = {{"command", "profile"},    {"device", report.device},           {"host", host_json(report)},
               {"build_id", own_build()}, {"ceilings", ceilings_json(report)}, {"steps", traced},
               {"not_traced", others}};
  return page;
}

std::vector<std::string> profile_result_lines(const ProfileReport& report) {
  std::vector<std::string> lines;
  for (const StepProfile& p : report.steps) {
    if (p.status == RowStatus::failed) continue;
    lines.push_back(result_line("profile", step_json(report, p), p.timer, host_json(report)));
  }
  return lines;
}

}  // namespace kiln
