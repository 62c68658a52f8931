#include <fmt/format.h>

#include "base/json.h"
#include "base/plain_number.h"
#include "rows/row_outcome.h"
#include "rows/row_values.h"
#include "studies/ranks/columns.h"
#include "studies/ranks/zero.h"

namespace kiln {
namespace {

// A row with the report it is of.
struct Line {
  const BenchZeroReport& report;
  const ZeroRow& row;
};
using In = const Line&;

Json moments_json(const MemorySnapshots& m) {
  Json j = Json::object();
  const auto add = [&](const char* name, const MemoryStats& s) {
    j[name] = {{"peak_bytes", s.peak_total},
               {"live_bytes", s.live_total},
               {"peak_by_tag", tags_json(s.peak)},
               {"live_by_tag", tags_json(s.live)}};
  };
  add("after_init", m.after_init);
  add("before_step", m.before_step);
  add("after_step", m.after_step);
  return j;
}

// A value of rows that were measured.
template <auto Get>
Json measured(const Line& l) {
  return l.row.measured ? Json(Get(l.row)) : Json();
}

// Sums of sizes: whole.
int64_t whole_bytes(double bytes) { return static_cast<int64_t>(bytes); }

Json in_ms(std::optional<double> us) { return us ? Json(*us / 1e3) : Json(); }

Json saved(const Line& l) {
  const ZeroRow* whole = l.report.unsharded(l.row.ranks);
  return whole == nullptr ? Json() : Json(1 - l.row.predicted_state() / whole->predicted_state());
}

Json speedup(const Line& l) {
  const ZeroRow* whole = l.report.unsharded(l.row.ranks);
  if (whole == nullptr || !whole->measured || !l.row.measured) return {};
  return whole->measured->timing.p50 / l.row.measured->timing.p50;
}

// Of a row, at one of its moments; what was not measured is as meta has it.
const Json& moment(const Json& row, std::string_view name) {
  const Json* memory = row.find("memory");
  return (memory == nullptr ? row.at("predicted_memory") : *memory).at(name);
}

template <const char* kMoment>
std::string peak_text(const Json& row) {
  return fine_mib(moment(row, kMoment).at("peak_bytes").get<double>());
}

// In use between steps, of what stays there; at its peak, of the rest.
template <const char* kTag, bool kStays>
std::string tag_text(const Json& row) {
  const Json& tags = moment(row, "after_step").at(kStays ? "live_by_tag" : "peak_by_tag");
  return fine_mib(number_at(tags, kTag).value_or(0));
}

constexpr char kAfterInit[] = "after_init", kBeforeStep[] = "before_step", kAfterStep[] = "after_step";
constexpr char kParam[] = "param", kMaster[] = "master", kGrad[] = "grad", kOptim[] = "optim",
               kActivation[] = "activation", kWorkspace[] = "workspace", kComm[] = "comm", kData[] = "data";

constexpr ColumnForm shown_only(std::string_view title, std::string (*text)(const Json&)) {
  return {.key = "", .title = title, .unit = Unit::number, .text = text};
}

// Of the memory at three moments, and by what it is for: made of the moments of a row.
std::span<const ColumnForm> moment_forms() {
  static constexpr ColumnForm kForms[] = {
      {"predicted_memory", ""},
      {"memory", ""},
      {.key = "",
       .title = "peaks",
       .text =
           [](const Json& row) { return std::string(row.contains("memory") ? "measured" : "predicted"); }},
      shown_only("after init MiB", peak_text<kAfterInit>),
      shown_only("before step", peak_text<kBeforeStep>),
      shown_only("after step", peak_text<kAfterStep>),
      shown_only("param MiB", tag_text<kParam, true>),
      shown_only("master", tag_text<kMaster, true>),
      shown_only("grad", tag_text<kGrad, true>),
      shown_only("optim", tag_text<kOptim, true>),
      shown_only("activation", tag_text<kActivation, false>),
      shown_only("workspace", tag_text<kWorkspace, false>),
      shown_only("comm", tag_text<kComm, false>),
      shown_only("data", tag_text<kData, false>),
  };
  return kForms;
}

Json moments_of(const Line& l) {
  Json json = {{"predicted_memory", moments_json(l.row.planned.memory)}};
  if (l.row.measured) json["memory"] = moments_json(l.row.measured->memory);
  return json;
}

const Schema<Line>& schema() {
  static const Schema<Line> kSchema = {
      {"stage", "stage", Unit::text, [](In l) { return Json(l.row.stage); }, Where::table},
      {"strategy", "strategy", Unit::text, [](In l) { return Json(strategy_of_stage(l.row.stage)); },
       Where::wide},
      ranks_columns<Line>([](In l) {
        return ranks_json(l.report.request, batch_of_rank(l.report.request, l.row.ranks) * l.row.ranks,
                          l.row.ranks);
      }),
      {"preset", "", Unit::text, [](In l) { return Json(l.report.request.preset); }},
      {"bucket_mb", "", Unit::number, [](In l) { return Json(l.report.request.bucket_mb); }},
      {"params", "", Unit::rate, [](In l) { return Json(l.report.parameters); }},
      outcome_columns<Line>([](In l) { return outcome_json(l.row); }),
      timing_columns<Line>(measured<[](const ZeroRow& r) { return timing_json(r.measured->timing); }>),
      {"speedup_over_stage_0", "vs stage 0", Unit::times, speedup, Where::table},
      {"compute_ms", "compute ms", Unit::milliseconds,
       measured<[](const ZeroRow& r) { return ms(r.compute); }>, Where::wide},
      {"communication_ms", "comm ms", Unit::milliseconds,
       measured<[](const ZeroRow& r) { return totals_of(r.measured->ledger).communication / 1e3; }>,
       Where::wide},
      {"exposed_ms", "exposed ms", Unit::milliseconds,
       measured<[](const ZeroRow& r) { return totals_of(r.measured->ledger).exposed / 1e3; }>, Where::table},
      {"predicted_ms", "predicted ms", Unit::milliseconds,
       [](In l) { return in_ms(l.report.predicted_us(l.row)); }, Where::table},
      {"roofline_ms", "roofline ms", Unit::milliseconds, [](In l) { return in_ms(l.report.floor_us(l.row)); },
       Where::table, "floor_ms"},
      {.key = "", .title = "", .get = moments_of, .group = moment_forms()},
      {"peak_bytes", "peak MiB", Unit::bytes,
       measured<[](const ZeroRow& r) { return r.measured->memory.after_step.peak_total; }>, Where::table},
      {"memory_rank", "", Unit::count, measured<[](const ZeroRow& r) { return r.measured->memory_rank; }>},
      {"peak_by_tag", "", Unit::bytes,
       measured<[](const ZeroRow& r) { return tags_json(r.measured->memory.after_step.peak); }>},
      {"predicted_peak_bytes", "predicted MiB", Unit::bytes,
       [](In l) { return Json(l.row.planned.memory.after_step.peak_total); }, Where::table},
      {"state_bytes", "state MiB", Unit::bytes,
       measured<[](const ZeroRow& r) { return whole_bytes(*r.state()); }>},
      {"predicted_state_bytes", "predicted state", Unit::bytes,
       [](In l) { return Json(whole_bytes(l.row.predicted_state())); }, Where::wide},
      {"theory_state_bytes", "by theory", Unit::bytes, [](In l) { return Json(l.row.theory.state()); }},
      {"state_saved", "saved", Unit::percent, saved, Where::table},
      {"sent_bytes", "sent MiB", Unit::bytes,
       measured<[](const ZeroRow& r) { return sent_bytes(r.measured->ledger, r.ranks); }>},
      {"predicted_sent_bytes", "predicted", Unit::bytes,
       [](In l) { return Json(sent_bytes(l.row.planned.ledger, l.row.ranks)); }},
      {"theory_sent_bytes", "by theory", Unit::bytes, [](In l) { return Json(l.row.theory.sent); }},
      {.key = "paper_volume",
       .title = "paper",
       .get = [](In l) { return Json(l.row.theory.volume); },
       .text =
           [](const Json& row) {
             return fmt::format("{} P (N-1)/N", plain(*number_at(row, "paper_volume"), 6));
           }},
  };
  return kSchema;
}

std::vector<PageTable> tables_of(const std::vector<Json>& rows) {
  const auto columns = schema().forms();
  return {table_of("memory of the rank with the highest peak: peaks so far, and persistent between steps",
                   columns, rows,
                   {"stage", "peaks", "ranks", "after init MiB", "before step", "after step",
                    "predicted_peak_bytes", "state_bytes", "predicted_state_bytes", "theory_state_bytes",
                    "state_saved"}),
          table_of("by purpose: persistent state, and the peak of the rest", columns, rows,
                   {"stage", "ranks", "param MiB", "master", "grad", "optim", "activation", "workspace",
                    "comm", "data"}),
          table_of(
              "bytes a rank sends in a step; theory: as the paper counts", columns, rows,
              {"stage", "ranks", "paper_volume", "sent_bytes", "predicted_sent_bytes", "theory_sent_bytes"})};
}

}  // namespace

std::string zero_caption(const BenchZeroReport& r) {
  const BenchZeroRequest& q = r.request;
  const double millions = static_cast<double>(r.parameters) / 1e6;
  return fmt::format("{} ({} million parameters), {}, ctx {}, {}, {} ({}), {}", q.size.name,
                     millions < 1000 ? plain(millions, 3) : fmt::format("{:.0f}", millions), batch_text(q),
                     q.context, name_of(q.precision), q.transport, r.device, link_text(q));
}

StudyPage zero_page(const BenchZeroReport& report, bool wide) {
  StudyPage page;
  page.place = zero_caption(report);
  page.columns = schema().forms();
  page.shown.wide = wide;
  for (const ZeroRow& r : report.rows) {
    page.rows.push_back(schema().row({report, r}));
    const std::string name = fmt::format("stage {} of {} ranks", r.stage, r.ranks);
    if (!r.measured && report.request.measure) page.notes.push_back(name + ": " + r.not_measured);
    if (r.gate_failed()) page.notes.push_back(fmt::format("{} is WRONG: {}", name, r.reason));
  }
  if (report.stopped) page.notes.push_back("stopped before its last row");
  add_load_note(report, page.notes);
  page.tables = tables_of(page.rows);
  page.json = ranks_document("bench zero", report, page.rows);
  return page;
}

std::vector<std::string> zero_result_lines(const BenchZeroReport& report) {
  std::vector<std::string> lines;
  for (const ZeroRow& r : report.rows) {
    if (r.gate_failed()) continue;
    lines.push_back(result_line("bench zero", schema().row({report, r}),
                                r.measured ? r.measured->timing : Timing{}, host_json(report)));
  }
  return lines;
}

}  // namespace kiln
