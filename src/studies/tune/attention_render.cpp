#include <fmt/format.h>

#include "rows/row_outcome.h"
#include "rows/row_values.h"
#include "studies/format.h"
#include "studies/tune/render.h"

namespace kiln {
namespace {

// One candidate of a shape; on meta, with nothing measured.
struct Line {
  const TunedCell& cell;
  const TunedTiles& tiles;
  bool planned;
};

template <auto Get>
Json timed(const Line& l) {
  return l.tiles.seconds ? Json(Get(l)) : Json();
}

double tflops(const Line& l) {
  return l.cell.cell.least(AttentionPass::forward).flops / *l.tiles.seconds / 1e12;
}

std::string tiles_of(const Json& row) {
  const auto size = [&](const char* key) { return static_cast<int>(number_at(row, key).value_or(0)); };
  return AttentionTiles{size("queries"), size("keys"), size("stages")}.str();
}

std::string mark_of(const Json& row) {
  if (row.contains("error")) return "error";
  const bool chosen = text_at(row, "chosen") == "yes", is_default = text_at(row, "default") == "yes";
  return fmt::format("{}{}{}", chosen ? "chosen" : "", chosen && is_default ? ", " : "",
                     is_default ? "default" : "");
}

std::string shared_kib(const Json& row) {
  return fmt::format("{:.0f}", number_at(row, "shared_bytes").value_or(0) / 1024);
}

// The default's output is what the others' are compared with.
RowOutcome outcome_of(const Line& l) {
  RowOutcome outcome;
  if (l.planned) outcome.status = RowStatus::modelled;
  if (!l.tiles.error.empty()) outcome.fail_gate(l.tiles.error);
  if (outcome.ok() && l.tiles.seconds && !l.tiles.candidate.is_default) outcome.gate = Gate::passed;
  return outcome;
}

const Schema<Line>& schema() {
  static const Schema<Line> kSchema = {
      outcome_columns<Line>([](const Line& l) { return outcome_json(outcome_of(l)); },
                            stored_outcome_forms()),
      {"", "tiles", Unit::text, nullptr, Where::table, "", tiles_of},
      {"queries", "", Unit::count, [](const Line& l) { return Json(l.tiles.candidate.tiles.queries); }},
      {"keys", "", Unit::count, [](const Line& l) { return Json(l.tiles.candidate.tiles.keys); }},
      {"stages", "", Unit::count, [](const Line& l) { return Json(l.tiles.candidate.tiles.stages); }},
      {"shared_bytes", "shared KiB", Unit::count,
       [](const Line& l) { return Json(l.tiles.candidate.shared_bytes); }, Where::table, "", shared_kib},
      {"default", "", Unit::text, [](const Line& l) { return Json(l.tiles.candidate.is_default); }},
      {"chosen", "", Unit::text, [](const Line& l) { return l.planned ? Json() : Json(l.tiles.chosen); }},
      {"ms", "ms", Unit::milliseconds, timed<[](const Line& l) { return ms(*l.tiles.seconds); }>,
       Where::table},
      {"tflop_per_s", "TFLOP/s", Unit::number, timed<tflops>, Where::table},
      {"gain", "gain", Unit::times,
       timed<[](const Line& l) { return l.cell.default_seconds() / *l.tiles.seconds; }>, Where::table},
      {"difference", "", Unit::number, timed<[](const Line& l) { return l.tiles.difference; }>},
      {"error", "", Unit::text,
       [](const Line& l) { return l.planned || l.tiles.seconds ? Json() : Json(l.tiles.error); }},
      {"", "choice", Unit::text, nullptr, Where::table, "", mark_of},
  };
  return kSchema;
}

Json shape_json(const TunedCell& cell, const std::vector<Json>& tiles) {
  const AttentionCell& c = cell.cell;
  Json shape = {{"batch", c.batch},   {"heads", c.heads},          {"seq", c.seq},
                {"d", c.d},           {"dtype", name_of(c.dtype)}, {"causal", c.causal},
                {"packed", c.packed}, {"variant", cell.variant},   {"tiles", tiles}};
  if (!cell.reason.empty()) shape["reason"] = cell.reason;
  return shape;
}

void add_cell(StudyPage& page, Json& shapes, const TunedCell& cell, bool planned) {
  const std::string name = fmt::format("{}, {}", cell.cell.str(), cell.variant);
  std::vector<Json> rows;
  for (const TunedTiles& t : cell.tiles) {
    rows.push_back(schema().row({cell, t, planned}));
    if (!t.error.empty())
      page.notes.push_back(fmt::format("{}, {}: {}", name, t.candidate.tiles.str(), t.error));
  }
  if (!cell.reason.empty()) page.notes.push_back(fmt::format("{}: {}", cell.cell.str(), cell.reason));
  shapes.push_back(shape_json(cell, rows));
  if (rows.empty()) return;
  RowTable table = row_table(schema().forms(), rows);
  page.tables.push_back({name, std::move(table.lines), table.left});
}

}  // namespace

StudyPage tune_attention_page(const TuneAttentionReport& r) {
  StudyPage page;
  Json shapes = Json::array();
  for (const TunedCell& cell : r.cells) add_cell(page, shapes, cell, r.planned);
  if (!r.planned && r.choices > 0)
    page.notes.push_back(fmt::format("{} choices of tiles for {} in {}", r.choices, r.gpu, r.file));
  add_load_note(r, page.notes);
  page.json = {{"command", "tune attention"}, {"device", r.device}};
  if (!r.planned)
    page.json.update({{"gpu", r.gpu}, {"file", r.file}, {"choices", r.choices}, {"load", load_json(r.load)}});
  page.json["shapes"] = std::move(shapes);
  return page;
}

}  // namespace kiln
