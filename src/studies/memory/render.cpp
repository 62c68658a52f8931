#include "studies/memory/render.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/plain_number.h"
#include "rows/row_outcome.h"
#include "rows/row_values.h"
#include "studies/format.h"

namespace kiln {
namespace {

constexpr Where kTable = Where::table;
constexpr Unit kMiB = Unit::mebibytes;

template <class F>
void each_tag(F f) {
  for (int t = 0; t < kTagCount; ++t) f(static_cast<Tag>(t));
}

std::string row_title(const MemoryRow& r) {
  return fmt::format("{}, {}, {}, ctx {}", r.size.name, name_of(r.spec.mode), name_of(r.spec.precision),
                     r.spec.step.context);
}

// --- a row

struct Line {
  const MemoryStudyRequest& request;
  const MemoryRow& of;
};

template <class... Phases>
std::string peak_in(const Json& row, Phases... wanted) {
  double most = 0;
  for (const Json& p : row.at("phases")) {
    const std::string phase = text_at(p, "phase");
    if (((phase == name_of(wanted)) || ...)) most = std::max(most, p.at("peak_bytes").get<double>());
  }
  return most == 0 ? "-" : fine_mib(most);
}

// A peak is counted, not timed: its gate says whether the device allocated what meta predicted.
RowOutcome outcome_of(const MemoryRow& r) {
  if (!r.measured) return {.status = RowStatus::modelled, .reason = r.not_measured};
  const bool same = r.measured->peak_total == r.predicted.peak_total;
  return {.gate = same ? Gate::passed : Gate::not_verified};
}

// What results.jsonl keeps, and the table; the rest of a row is in the document alone.
const Schema<Line>& schema() {
  using L = Line;
  using J = const Json&;
  static const Schema<L> kSchema = {
      {"size", "size", Unit::text, [](const L& l) { return Json(l.of.size.name); }, kTable},
      {"phase", "phase", Unit::text, [](const L& l) { return Json(name_of(l.of.spec.mode)); }, kTable},
      {"dtype", "precision", Unit::text, [](const L& l) { return Json(name_of(l.of.spec.precision)); },
       kTable},
      {"ctx", "ctx", Unit::count, [](const L& l) { return Json(l.of.spec.step.context); }, kTable},
      outcome_columns<L>([](const L& l) { return outcome_json(outcome_of(l.of)); }, stored_outcome_forms()),
      {"batch", "", Unit::count, [](const L& l) { return Json(l.of.spec.step.batch); }},
      {"micro_steps", "", Unit::count, [](const L& l) { return Json(l.of.spec.step.micro_steps); }},
      {"vocab", "", Unit::count, [](const L& l) { return Json(l.of.spec.model.vocab); }},
      {"preset", "", Unit::text, [](const L& l) { return Json(l.request.preset); }},
      {"variants", "", Unit::text, [](const L& l) { return Json(l.request.variants); }},
      {"recompute", "", Unit::text, [](const L& l) { return Json(name_of(l.of.spec.model.recompute)); }},
      {"compile", "", Unit::text, [](const L& l) { return Json(name_of(l.of.spec.model.compile)); }},
      {"device", "", Unit::text, [](const L& l) { return Json(l.request.device.str()); }},
      {"parameters", "parameters", Unit::rate, [](const L& l) { return Json(l.of.params); }, Where::wide},
      {"predicted_peak_bytes", "predicted MiB", kMiB,
       [](const L& l) { return Json(l.of.predicted.peak_total); }, kTable},
      {"predicted_peak_by_tag", "", Unit::text, [](const L& l) { return tags_json(l.of.predicted.peak); }},
      {"predicted_reserved_bytes", "", kMiB, [](const L& l) { return Json(l.of.predicted.peak_reserved); }},
      or_null<L>({"measured_peak_bytes", "measured", kMiB,
                  [](const L& l) { return l.of.measured ? Json(l.of.measured->peak_total) : Json(); },
                  kTable}),
      or_null<L>({"measured_peak_by_tag", "", Unit::text,
                  [](const L& l) { return l.of.measured ? tags_json(l.of.measured->peak) : Json(); }}),
      {"not_measured", "", Unit::text, [](const L& l) { return Json(l.of.not_measured); }},
      {"floor_bytes", "floor", kMiB, [](const L& l) { return Json(l.of.floor); }, kTable},
      {"", "of floor", Unit::times, nullptr, kTable, "",
       [](J row) { return times(ratio_of(row, "predicted_peak_bytes", "floor_bytes")); }},
      {"residual_stream_bytes", "", kMiB, [](const L& l) { return Json(l.of.stream); }},
      {"score_bytes_at_peak", "", kMiB, [](const L& l) { return Json(l.of.scores); }},
      {"", "forward", kMiB, nullptr, kTable, "", [](J row) { return peak_in(row, Phase::forward); }},
      {"", "backward", kMiB, nullptr, kTable, "",
       [](J row) { return peak_in(row, Phase::backward, Phase::recompute); }},
      {"reserved_bytes", "reserved", kMiB, nullptr, kTable},
  };
  return kSchema;
}

// --- what a trace says of a row

std::string layers_text(const Json& row) {
  const Json& layers = row.at("layers");
  return layers.size() == 1 ? layers.front().text() : fmt::format("{} layers", layers.size());
}

const Schema<MemoryRow::Large>& large_schema() {
  using R = MemoryRow::Large;
  static const Schema<R> kSchema = {
      {"op", "allocated by", Unit::text, field<&R::op>, kTable},
      {"layers", "layer", Unit::text, field<&R::layers>, kTable, "", layers_text},
      {"tag", "tag", Unit::text, field<&R::tag>, kTable},
      {"line", "line", Unit::text, field<&R::line>, kTable},
      {"function", "", Unit::text, field<&R::function>},
      {"bytes", "MiB each", kMiB, field<&R::bytes>, kTable},
      {"count", "times", Unit::count, field<&R::count>, kTable},
      {"at_peak", "at the peak", Unit::count, field<&R::live_at_peak>, kTable},
  };
  return kSchema;
}

struct GroupLine {
  const MemoryGroup& of;
  std::size_t peak;
};

double share_of(std::size_t part, std::size_t all) {
  return all == 0 ? 0 : static_cast<double>(part) / static_cast<double>(all);
}

const Schema<GroupLine>& group_schema() {
  using L = GroupLine;
  static const Schema<L> kSchema = {
      {"name", "allocated by", Unit::text, [](const L& l) { return Json(l.of.name); }, kTable},
      {"at_peak_bytes", "at the peak MiB", kMiB, [](const L& l) { return Json(l.of.at_peak); }, kTable},
      {"share", "of it", Unit::share, [](const L& l) { return Json(share_of(l.of.at_peak, l.peak)); },
       kTable},
      {"allocated_bytes", "allocated", kMiB, [](const L& l) { return Json(l.of.allocated); }, kTable},
      {"count", "times", Unit::count, [](const L& l) { return Json(l.of.count); }, kTable},
      {"largest_bytes", "largest", kMiB, [](const L& l) { return Json(l.of.largest); }, kTable},
  };
  return kSchema;
}

Json groups_json(const std::vector<MemoryGroup>& groups, const MemoryRow& r) {
  Json rows = Json::array();
  for (const MemoryGroup& g : groups) rows.append(group_schema().row({g, r.peak.bytes}));
  return rows;
}

Json row_json(const MemoryReport& report, const MemoryRow& r) {
  Json row = schema().row({report.request, r});
  Json phases = Json::array();
  for (const PhasePeak& p : r.phases)
    phases.append({{"phase", name_of(p.phase)},
                   {"peak_bytes", p.peak.bytes},
                   {"event", p.peak.event},
                   {"by_tag", tags_json(p.peak.by_tag)}});
  row.update({{"reserved_bytes", (r.measured ? *r.measured : r.predicted).peak_reserved},
              {"peak",
               {{"bytes", r.peak.bytes},
                {"event", r.peak.event},
                {"phase", name_of(r.peak_phase)},
                {"by_tag", tags_json(r.peak.by_tag)}}},
              {"phases", phases},
              {"largest", large_schema().rows(r.largest)},
              {"by_op", groups_json(r.by_op, r)},
              {"by_line", groups_json(r.by_line, r)},
              {"by_layer", groups_json(r.by_layer, r)},
              {"events", r.events},
              {"dropped_events", r.dropped},
              {"files", r.files}});
  return row;
}

// The first of them, and how many more there are.
PageTable first_of(const std::string& heading, std::span<const ColumnForm> columns, const Json& rows,
                   std::size_t count, const char* what = "") {
  const std::size_t shown = std::min(count, rows.size());
  const auto& all = rows.items_of_array();
  PageTable t =
      page_table(heading, columns, Json::Array(all.begin(), all.begin() + static_cast<long>(shown)));
  if (rows.size() > shown) t.lines.push_back(fmt::format("and {} more{}", rows.size() - shown, what));
  return t;
}

PageTable tags_table(const MemoryRow& r) {
  static constexpr ColumnForm kColumns[] = {{"tag", "tag", Unit::text, kTable},
                                            {"at_peak", "at the peak MiB", kMiB, kTable},
                                            {"share", "of it", Unit::share, kTable},
                                            {"own_peak", "its own peak", kMiB, kTable}};
  Json rows = Json::array();
  each_tag([&](Tag t) {
    if (r.own_peak[t] != 0)
      rows.append({{"tag", name_of(t)},
                   {"at_peak", r.peak.by_tag[t]},
                   {"share", share_of(r.peak.by_tag[t], r.peak.bytes)},
                   {"own_peak", r.own_peak[t]}});
  });
  return page_table(fmt::format("{}: {} MiB at the peak, in {}", row_title(r),
                                fine_mib(static_cast<double>(r.peak.bytes)), name_of(r.peak_phase)),
                    kColumns, rows);
}

// The last row, in detail.
void add_detail(StudyPage& page, const MemoryReport& report) {
  const MemoryRow& r = report.rows.back();
  const Json& row = page.rows.back();
  page.tables.push_back(tags_table(r));
  page.tables.push_back(
      first_of(fmt::format("the largest {} % of all allocations", plain(report.request.detail, 6)),
               large_schema().forms(), row.at("largest"), 12, " kinds"));
  page.tables.push_back(first_of("by op", group_schema().forms(), row.at("by_op"), 10));
  page.tables.push_back(first_of("by line", group_schema().forms(), row.at("by_line"), 10));
  page.tables.push_back(first_of("by layer", group_schema().forms(), row.at("by_layer"), 6));
  PageTable words;
  words.lines.push_back(fmt::format("one tensor of the residual stream: {} x {} x {} x {} B = {} MiB",
                                    r.spec.step.batch, r.spec.step.context, r.spec.model.d_model,
                                    size_of(policy_of(r.spec.precision).value),
                                    fine_mib(static_cast<double>(r.stream))));
  if (r.scores != 0)
    words.lines.push_back(fmt::format("matrices of {0} x {0} scores hold {1:.1f} % of the peak",
                                      r.spec.step.context, 100 * share_of(r.scores, r.peak.bytes)));
  if (r.dropped != 0)
    words.lines.push_back(fmt::format("{} older events were dropped: --events keeps more than {}", r.dropped,
                                      report.request.most_events));
  page.tables.push_back(std::move(words));
}

// --- notes: is measured what was predicted?

std::vector<std::string> differences(const MemoryReport& report) {
  std::vector<std::string> notes;
  std::vector<std::pair<std::string, int>> reasons;  // the same one for many rows, mostly
  bool same = true;
  for (const MemoryRow& r : report.rows) {
    same = same && r.measured && r.measured->peak_total == r.predicted.peak_total;
    if (!r.measured) {
      auto it = std::find_if(reasons.begin(), reasons.end(),
                             [&](const auto& p) { return p.first == r.not_measured; });
      if (it == reasons.end()) it = reasons.insert(reasons.end(), {r.not_measured, 0});
      ++it->second;
    } else if (r.measured->peak_total != r.predicted.peak_total) {
      notes.push_back(fmt::format(
          "{}: measured differs from predicted by {} bytes", row_title(r),
          static_cast<int64_t>(r.measured->peak_total) - static_cast<int64_t>(r.predicted.peak_total)));
    }
  }
  for (const auto& [why, rows] : reasons)
    notes.push_back(fmt::format("predicted only, {} row{}: {}", rows, rows == 1 ? "" : "s", why));
  if (same) notes.emplace_back("measured and predicted are the same to the byte");
  return notes;
}

// What the peaks hold besides what is kept of the parameters, by any row.
std::string others_at_peak(const MemoryReport& report) {
  std::string text;
  for (const Tag t : {Tag::activation, Tag::workspace, Tag::comm, Tag::data}) {
    const bool any = std::any_of(report.rows.begin(), report.rows.end(),
                                 [&](const MemoryRow& r) { return r.peak.by_tag[t] > 0; });
    if (any) text += fmt::format("{}{}", text.empty() ? "" : ", ", name_of(t));
  }
  return text.empty() ? "nothing else" : text;
}

}  // namespace

StudyPage memory_page(const MemoryReport& report, bool wide) {
  const MemoryStudyRequest& q = report.request;
  StudyPage page;
  page.place = fmt::format("{}, batch {}, preset {}{}{}, recompute {}; peaks in MiB", q.device.str(), q.batch,
                           q.preset, q.variants.empty() ? "" : ",", q.variants, name_of(q.recompute));
  page.columns = schema().forms();
  page.shown.wide = wide;
  for (const MemoryRow& r : report.rows) page.rows.push_back(row_json(report, r));
  page.notes = differences(report);
  for (const MemoryRow& r : report.rows) {
    if (!r.policy.empty()) page.notes.push_back(fmt::format("{}: {}", r.size.name, r.policy));
  }
  page.notes.push_back(fmt::format(
      "floor: the bytes of all parameters in this precision and phase; at the peak there is also {}",
      others_at_peak(report)));
  const Json changes = precision_changes(report);
  for (const Json& change : changes) page.tables.push_back(change_table(change));
  add_detail(page, report);
  PageTable files{"written", {}};
  for (const MemoryRow& r : report.rows)
    files.lines.insert(files.lines.end(), r.files.begin(), r.files.end());
  page.tables.push_back(std::move(files));
  page.json = {{"command", "memory"},
               {"device", q.device.str()},
               {"detail", q.detail},
               {"rows", page.rows},
               {"precision", changes}};
  return page;
}

std::vector<std::string> memory_result_lines(const MemoryReport& report) {
  std::vector<std::string> lines;
  constexpr std::size_t kLargest = 8;  // of them a row keeps the first
  for (const MemoryRow& r : report.rows) {
    Json row = schema().row({report.request, r});
    const std::size_t kept = std::min(kLargest, r.largest.size());
    row["largest"] = large_schema().rows(std::span(r.largest).first(kept));
    row["files"] = r.files;
    lines.push_back(result_line("memory", row, {}, Json::object()));
  }
  return lines;
}

}  // namespace kiln
