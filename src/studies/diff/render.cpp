#include "studies/diff/render.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/plain_number.h"
#include "rows/row_values.h"
#include "studies/format.h"

namespace kiln {
namespace {

constexpr std::size_t kSentences = 3;

std::string signed_ms(double ms) { return fmt::format("{:+.3f}", ms); }

Json causes_json(const std::vector<CauseChange>& causes) {
  Json json = Json::array();
  for (const CauseChange& c : causes) json.append({{"name", c.name}, {"ms", c.ms}});
  return json;
}

std::string change_text(const Json& row) {
  const double ms = number_at(row, "change_ms").value_or(0);
  return signed_ms(ms) + (text_at(row, "significance") == "noise" ? " noise" : "");
}

std::string main_cause(const Json& row) {
  const Json* causes = row.find("causes");
  return causes == nullptr || causes->empty() ? "" : text_at(causes->front(), "name");
}

Json known(const std::optional<double>& ms) { return ms ? Json(*ms) : Json(); }

const Schema<OpChange>& op_schema() {
  using Op = OpChange;
  constexpr Unit kMs = Unit::milliseconds;
  static const Schema<Op> kSchema = {
      {"op", "op", Unit::text, field<&Op::op>, Where::table},
      {"pass", "pass", Unit::text, field<&Op::pass>, Where::table},
      {"variant_a", "variant A", Unit::text,
       [](const Op& op) { return op.variant_a.empty() ? Json() : Json(op.variant_a); }, Where::table},
      {"variant_b", "variant B", Unit::text,
       [](const Op& op) { return op.variant_b.empty() ? Json() : Json(op.variant_b); }, Where::table},
      or_null<Op>({"a_ms", "A ms", kMs, [](const Op& op) { return known(op.a); }, Where::table}),
      or_null<Op>({"b_ms", "B ms", kMs, [](const Op& op) { return known(op.b); }, Where::table}),
      {"change_ms", "B - A", kMs, field<&Op::ms>, Where::table, "", change_text},
      {"significance", "", Unit::text,
       [](const Op& op) {
         return Json(op.noise() ? "noise" : !op.a ? "only in B" : !op.b ? "only in A" : "significant");
       }},
      {"p", "p", Unit::number, [](const Op& op) { return Json(op.significance.p); }, Where::wide},
      {"causes", "mainly", Unit::text, [](const Op& op) { return causes_json(op.causes); }, Where::table, "",
       main_cause},
  };
  return kSchema;
}

// --- causes, a column each

std::string cell(const std::vector<CauseChange>& causes, const std::string& name) {
  const auto found =
      std::find_if(causes.begin(), causes.end(), [&](const CauseChange& c) { return c.name == name; });
  return found == causes.end() ? "" : signed_ms(found->ms);
}

std::string short_name(const std::string& name) {
  if (name == "tile padding") return "tiles";
  if (name == "small calls") return "small";
  if (name == "rate at this shape") return "rate";
  return name == "cache-resident" ? "cache" : name;
}

TextTable cause_table(const StepDiff& diff) {
  TextTable table = {{"op", "pass", "B - A"}};
  for (const CauseChange& c : diff.causes) table.front().push_back(short_name(c.name));
  const auto line = [&](std::string op, std::string pass, double ms, const std::vector<CauseChange>& causes) {
    std::vector<std::string> cells = {std::move(op), std::move(pass), signed_ms(ms)};
    for (const CauseChange& c : diff.causes) cells.push_back(cell(causes, c.name));
    table.push_back(std::move(cells));
  };
  for (const OpChange& op : diff.ops) line(op.op, op.pass, op.ms(), op.causes);
  line("step", "", diff.ms(), diff.causes);
  return table;
}

TextTable tag_table(const StepDiff& diff) {
  const auto mib = [](double bytes) { return fmt::format("{:.2f}", bytes / 0x1p20); };
  TextTable table = {{"peak of", "A MiB", "B MiB", "B - A"}};
  for (const TagChange& t : diff.tags)
    table.push_back({t.tag, mib(t.a), mib(t.b), fmt::format("{:+.2f}", t.bytes() / 0x1p20)});
  table.push_back({"step", mib(diff.peak_a), mib(diff.peak_b),
                   fmt::format("{:+.2f}", (diff.peak_b - diff.peak_a) / 0x1p20)});
  return table;
}

// --- sentences

std::string side(const char* name, const std::string& differs) {
  return differs.empty() ? name : fmt::format("{} ({})", name, differs);
}

std::string causes_text(const std::vector<CauseChange>& causes) {
  std::string text;
  for (const CauseChange& c : causes)
    text += fmt::format("{}{} {} ms", text.empty() ? "" : ", ", c.name, signed_ms(c.ms));
  return text;
}

std::string total_sentence(const StepDiff& d) {
  const bool noise = !d.significance.significant();
  std::string text = fmt::format("{} takes {} ms a step, {} {} ms: {} ms", side("A", d.differs_a),
                                 plain(d.a, 4), side("B", d.differs_b), plain(d.b, 4), signed_ms(d.ms()));
  if (!noise && d.a > 0 && d.b > 0)
    text += d.b < d.a ? fmt::format(", B is {:.2f}x as fast", d.a / d.b)
                      : fmt::format(", B takes {:.2f}x as long", d.b / d.a);
  if (noise)
    text += fmt::format(", within the spread of the steps ({}, p {})", name_of(d.significance.significance),
                        plain(d.significance.p, 2));
  return text + ".";
}

std::string op_sentence(const OpChange& op) {
  std::string variants;
  if (!op.variant_a.empty() && !op.variant_b.empty() && op.variant_a != op.variant_b)
    variants = fmt::format(" ({} to {})", op.variant_a, op.variant_b);
  const char* only = !op.a ? ", only in B" : !op.b ? ", only in A" : "";
  return fmt::format("{}{}{}{}{}: {} ms ({}).", op.op, op.pass.empty() ? "" : " ", op.pass, variants, only,
                     signed_ms(op.ms()), causes_text(op.causes));
}

Json total_row(const StepDiff& d) {
  return {{"op", "step"},
          {"a_ms", d.a},
          {"b_ms", d.b},
          {"change_ms", d.ms()},
          {"significance", d.significance.significant() ? "significant" : "noise"},
          {"p", d.significance.p},
          {"causes", causes_json(d.causes)}};
}

Json tags_json(const StepDiff& d) {
  Json json = Json::array();
  for (const TagChange& t : d.tags)
    json.append({{"tag", t.tag}, {"a_bytes", t.a}, {"b_bytes", t.b}, {"change_bytes", t.bytes()}});
  return json;
}

}  // namespace

StudyPage diff_page(const StepDiff& diff, bool wide) {
  StudyPage page;
  page.place = fmt::format("A: {}\nB: {}", diff.differs_a.empty() ? "as B" : diff.differs_a,
                           diff.differs_b.empty() ? "as A" : diff.differs_b);
  page.columns = op_schema().forms();
  page.shown.wide = wide;
  for (const OpChange& op : diff.ops) page.rows.push_back(op_schema().row(op));
  page.json = {{"command", "diff"},
               {"build_id", own_build()},
               {"a", diff.differs_a},
               {"b", diff.differs_b},
               {"a_ms", diff.a},
               {"b_ms", diff.b},
               {"change_ms", diff.ms()},
               {"significance", diff.significance.significant() ? "significant" : "noise"},
               {"p", diff.significance.p},
               {"causes", causes_json(diff.causes)},
               {"a_peak_bytes", diff.peak_a},
               {"b_peak_bytes", diff.peak_b},
               {"tags", tags_json(diff)},
               {"rows", page.rows}};
  page.rows.push_back(total_row(diff));
  page.notes.push_back(total_sentence(diff));
  std::size_t told = 0;
  for (const OpChange& op : diff.ops) {
    if (op.noise() || op.ms() == 0 || told == kSentences) continue;
    page.notes.push_back(op_sentence(op));
    ++told;
  }
  page.tables.push_back({"the difference by cause, ms", cause_table(diff), 2});
  if (!diff.tags.empty()) page.tables.push_back({"peak memory by purpose, MiB", tag_table(diff), 1});
  return page;
}

}  // namespace kiln
