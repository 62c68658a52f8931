#include <fmt/format.h>

#include "studies/calc/derivation.h"
#include "studies/format.h"
#include "studies/plan/plan.h"

namespace kiln {
namespace {

struct Line {
  const PlanReport& report;
  const PlanRow& row;
  int rank;
};
using In = const Line&;

template <double StepParts::* kPart>
Json part(In l) {
  return Json(ms(l.row.parts.*kPart));
}

// In every row, 0 where there is none.
Json memory_json(const Line& l) {
  Json json = Json::object();
  for (int t = 0; t < kTagCount; ++t)
    json[cat(name_of(static_cast<Tag>(t)), "_bytes")] = l.row.memory.peak[static_cast<Tag>(t)];
  return json;
}

std::span<const ColumnForm> memory_forms() {
  static constexpr ColumnForm kForms[] = {
      {"param_bytes", "weights", Unit::bytes, Where::wide},
      {"master_bytes", "low halves", Unit::bytes, Where::wide},
      {"grad_bytes", "gradients", Unit::bytes, Where::wide},
      {"optim_bytes", "optimizer", Unit::bytes, Where::wide},
      {"activation_bytes", "activations", Unit::bytes, Where::wide},
      {"workspace_bytes", "workspace", Unit::bytes, Where::wide},
      {"comm_bytes", "comm", Unit::bytes, Where::wide},
      {"data_bytes", "", Unit::bytes},
  };
  return kForms;
}

std::string gib(const Json& row) { return fmt::format("{:.2f}", row["peak_bytes"].get<double>() / 0x1p30); }

const Schema<Line>& schema() {
  static const Schema<Line> kSchema =
      Schema<Line>{
          {"rank", "#", Unit::text, [](In l) { return Json(l.rank); }, Where::table},
          {"layout", "layout", Unit::text, [](In l) { return Json(l.row.layout.name()); }, Where::table},
          same_outcome_columns<Line, RowStatus::modelled>(),
          {"strategy", "", Unit::text, [](In l) { return Json(l.row.layout.strategy); }},
          {"dp", "", Unit::count, [](In l) { return Json(l.row.layout.data); }},
          {"tp", "", Unit::count, [](In l) { return Json(l.row.layout.tensor); }},
          {"pp", "", Unit::count, [](In l) { return Json(l.row.layout.stages); }},
          {"runs", "", Unit::text, [](In l) { return Json(l.row.layout.runs()); }},
          {"batch_per_rank", "batch a rank", Unit::count, [](In l) { return Json(l.row.batch); },
           Where::wide},
          {"step_ms", "step ms", Unit::milliseconds, [](In l) { return Json(ms(l.row.seconds())); },
           Where::table},
          {"tokens_per_s", "tokens/s", Unit::rate,
           [](In l) { return Json(l.report.tokens_per_second(l.row)); }, Where::table},
          {"mfu", "MFU %", Unit::percent, [](In l) { return Json(l.report.mfu(l.row)); }, Where::table},
          {"peak_bytes", "GiB a device", Unit::bytes, [](In l) { return Json(l.row.memory.peak_total); },
           Where::table, "", gib},
          {.key = "fits",
           .title = "fits",
           .get = [](In l) { return Json(l.row.fits); },
           .where = Where::table,
           .text = [](const Json& row) { return std::string(row["fits"].get<bool>() ? "yes" : "no"); }},
          {"bound", "bound by", Unit::text, [](In l) { return Json(l.row.bound()); }, Where::table},
      } +
      Schema<Line>{
          {"compute_ms", "compute", Unit::milliseconds, part<&StepParts::compute>, Where::wide},
          {"memory_ms", "memory", Unit::milliseconds, part<&StepParts::memory>, Where::wide},
          {"gaps_ms", "gaps", Unit::milliseconds, part<&StepParts::gaps>, Where::wide},
          {"tensor_ms", "tp sums", Unit::milliseconds, part<&StepParts::tensor>, Where::wide},
          {"gradients_exposed_ms", "gradients", Unit::milliseconds, part<&StepParts::gradients>, Where::wide},
          {"gathers_exposed_ms", "gathers", Unit::milliseconds, part<&StepParts::gathers>, Where::wide},
          {"bubble_ms", "bubble", Unit::milliseconds, part<&StepParts::bubble>, Where::wide},
          {"scalars_ms", "", Unit::milliseconds, part<&StepParts::other>},
          {"communication_ms", "", Unit::milliseconds, [](In l) { return Json(ms(l.row.communication)); }},
          {"bubble_share", "", Unit::percent, [](In l) { return Json(l.row.bubble_share); }},
          {"prefetch", "", Unit::count,
           [](In l) { return l.row.layout.strategy == "fsdp" ? Json(l.row.prefetch) : Json(); }},
          {"why_prefetch", "", Unit::text,
           [](In l) { return l.row.why_prefetch.empty() ? Json() : Json(l.row.why_prefetch); }},
          {"memory_by", "", Unit::text, [](In l) { return Json(l.row.memory_by); }},
          {.key = "", .title = "", .get = memory_json, .group = memory_forms()},
      };
  return kSchema;
}

std::string name_of_model(const PlanRequest& q) {
  return q.ffn_only ? std::string(q.ffn_only->name) : q.model.name;
}

std::string place_of(const PlanReport& r) {
  const PlanRequest& q = r.request;
  std::string text = fmt::format("{} ({} parameters), {}, on {} x {}; batch {} of {} tokens",
                                 name_of_model(q), with_unit(static_cast<double>(q.parameters()), ""),
                                 name_of(q.precision), r.devices, q.hardware.title, r.batch, q.context);
  if (q.micro_steps > 1) text += fmt::format(", {} micro-steps", q.micro_steps);
  if (q.recompute != Recompute::none) text += fmt::format(", recompute {}", name_of(q.recompute));
  return text;
}

void add_links(StudyPage& page, const PlanReport& r) {
  if (r.devices == 1) return;
  const Topology t = r.request.topology();
  page.notes.push_back(
      fmt::format("Links: {} inside a node of {}{}; {} between nodes{}. Collectives are rings "
                  "on each level.",
                  t.inside.str(), t.node, r.request.link ? "" : " (the hardware file's)", t.between.str(),
                  r.request.inter_link ? "" : " (the default)"));
}

void add_kind(StudyPage& page, const PlanReport& r) {
  const Hardware& h = r.request.hardware;
  if (r.kind == TimeKind::roofline)
    page.notes.push_back(
        fmt::format("Times are rooflines: {} has no calibration, so a step takes longer than "
                    "this. Compare layouts by them, not clocks.",
                    h.name));
  else
    page.notes.push_back(fmt::format("Times are predicted from calls calibrated on {}.",
                                     h.calibrated_on.empty() ? h.name : h.calibrated_on));
  if (!r.request.hardware_note.empty()) page.notes.push_back(r.request.hardware_note + ".");
  if (!h.runs_kiln)
    page.notes.push_back(fmt::format("{} is calculated with; kiln does not run on it.", h.name));
}

// What is on paper only, with its terms.
void add_described(StudyPage& page, const PlanReport& r) {
  for (const PlanRow& row : r.rows) {
    if (row.layout.stages == 1) continue;
    page.notes.push_back(
        "Pipelines (pp) are on paper: kiln does not run them. A step takes m + p - 1 ticks for p stages and "
        "m "
        "micro-batches of one sequence; (p - 1) / (m + p - 1) of it is the bubble.");
    break;
  }
  page.notes.push_back(
      "Expert parallelism would add two all-to-alls a layer and pass, each k B T D (N - 1) / N numbers from "
      "a "
      "device with k experts a token; kiln's models are dense, so no layout has it.");
}

Json document(const PlanReport& r, const std::vector<Json>& rows) {
  const PlanRequest& q = r.request;
  Json json = {{"command", "plan"},
               {"size", name_of_model(q)},
               {"params", q.parameters()},
               {"hw", q.hardware.name},
               {"device_bytes", q.memory_of_device()},
               {"devices", r.devices},
               {"node", q.node},
               {"batch", r.batch},
               {"ctx", q.context},
               {"precision", name_of(q.precision)},
               {"recompute", name_of(q.recompute)},
               {"grad_accum", q.micro_steps},
               {"times", name_of(r.kind)},
               {"model_flops", r.model_flops},
               {"flops_per_s", r.rate},
               {"fits", r.any_fits()}};
  if (r.devices > 1) {
    const Topology t = q.topology();
    json["link"] = t.inside.str();
    json["inter_link"] = t.between.str();
  }
  json["rows"] = rows;
  Json skipped = Json::array();
  for (const SkippedLayout& s : r.skipped) skipped.append({{"layout", s.name}, {"reason", s.reason}});
  json["skipped"] = skipped;
  return json;
}

}  // namespace

StudyPage plan_page(const PlanReport& report, bool wide) {
  StudyPage page;
  page.place = place_of(report);
  page.columns = schema().forms();
  page.shown.wide = wide;
  int rank = 0;
  for (const PlanRow& row : report.rows) {
    if (report.request.top > 0 && rank == report.request.top) break;
    page.rows.push_back(schema().row({report, row, ++rank}));
  }
  const PlanRow& best = report.rows.front();
  if (best.fits && best.layout.strategy == "fsdp")
    page.notes.push_back("Weights gathered ahead, of the first row: " + best.why_prefetch + ".");
  add_links(page, report);
  add_kind(page, report);
  for (const SkippedLayout& s : report.skipped)
    if (wide) page.notes.push_back(fmt::format("Left out: {}: {}.", s.name, s.reason));
  add_described(page, report);
  page.json = document(report, page.rows);
  return page;
}

StudyPage plan_pages(const std::vector<PlanReport>& reports, bool wide) {
  if (reports.size() == 1) return plan_page(reports.front(), wide);
  StudyPage page;
  Json plans = Json::array();
  for (const PlanReport& r : reports) {
    page.parts.push_back(plan_page(r, wide));
    page.parts.back().title = fmt::format("{} devices", r.devices);
    plans.append(page.parts.back().json);
  }
  page.json = {{"command", "plan"}, {"plans", plans}};
  return page;
}

}  // namespace kiln
