#include "studies/course/render.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/build_info.h"
#include "base/json.h"
#include "report/tables/text_table.h"
#include "report/text/escape.h"
#include "rows/row_values.h"

namespace kiln {
namespace {

bool tiny(const StudyRequest& r) { return r.scale == StudyScale::tiny; }

std::string place(const StudyRequest& r) {
  return fmt::format("{} ({}), kiln {}", r.device, r.device_name, build_info().build_id);
}

std::string title(const StudyRequest& r) {
  return fmt::format("study {}{}", r.study, tiny(r) ? ", at the tiny scale" : "");
}

constexpr const char* kReduced =
    "Reduced: the tiny scale has smaller models, shorter sequences and fewer steps than the study asks for; "
    "its\n"
    "figures say nothing about large models. Below: what was reduced in each part.";

// A part of a report, whose request says at which scale.
struct Line {
  const StudyRequest& request;
  const PartReport& part;
};

// What a part's line holds that came of running it.
bool has_run(const Json& row) { return !text_at(row, "time").empty(); }

std::string status_cell(const Json& row) {
  return fmt::format("{}{}", text_at(row, "status"), text_at(row, "reused") == "yes" ? ", before" : "");
}

std::string seconds_cell(const Json& row) {
  return has_run(row) ? fmt::format("{:.1f}", number_at(row, "seconds").value_or(0)) : "";
}

std::string rows_cell(const Json& row) {
  if (!has_run(row)) return {};
  const std::string rows = text_at(row, "rows"), none = text_at(row, "no_memory");
  return none == "0" ? rows : fmt::format("{} ({} OOM)", rows, none);
}

std::string charts_cell(const Json& row) { return fmt::format("{}", row.at("pictures").size()); }

const Schema<Line>& schema() {
  static const Schema<Line> kSchema = {
      {"name", "part", Unit::text, [](const Line& l) { return Json(l.part.part.name); }, Where::table},
      {"answers", "question", Unit::text, [](const Line& l) { return Json(l.part.part.answers); },
       Where::wide},
      {"command", "", Unit::text, [](const Line& l) { return Json(shell_line(l.part.args)); }},
      {"words", "", Unit::text, [](const Line& l) { return Json(l.part.args); }},
      {"reduced", "", Unit::text,
       [](const Line& l) { return Json(tiny(l.request) ? reduced(l.part.part) : std::string()); }},
      {"id", "", Unit::text, [](const Line& l) { return Json(l.part.id); }},
      {"asked", "", Unit::text, [](const Line& l) { return Json(l.part.asked); }},
      {"status",
       "status",
       Unit::text,
       [](const Line& l) { return Json(name_of(l.part.status)); },
       Where::table,
       {},
       status_cell},
      {"reused", "", Unit::text, [](const Line& l) { return Json(l.part.reused); }},
      {"page", "tables", Unit::text,
       [](const Line& l) { return Json(l.part.time.empty() ? "" : fmt::format("{}.md", l.part.part.name)); },
       Where::table},
      {"seconds",
       "s",
       Unit::number,
       [](const Line& l) { return Json(l.part.seconds); },
       Where::table,
       {},
       seconds_cell},
      {"time", "", Unit::text, [](const Line& l) { return Json(l.part.time); }},
      {"reason", "", Unit::text, [](const Line& l) { return Json(l.part.reason); }},
      {"rows",
       "rows",
       Unit::number,
       [](const Line& l) { return Json(l.part.rows); },
       Where::table,
       {},
       rows_cell},
      {"no_memory", "", Unit::count, [](const Line& l) { return Json(l.part.no_memory); }},
      {"pictures",
       "charts",
       Unit::number,
       [](const Line& l) { return Json(l.part.charts); },
       Where::table,
       {},
       charts_cell},
      {"conclusions", "", Unit::text, [](const Line& l) { return Json(l.part.answers); }},
  };
  return kSchema;
}

std::vector<Json> rows_of(const StudyReport& report) {
  std::vector<Json> rows;
  for (const PartReport& p : report.parts) rows.push_back(schema().row({report.request, p}));
  return rows;
}

std::vector<std::string> sentences(const StudyReport& report) {
  std::vector<std::string> lines;
  for (const PartReport& p : report.parts) {
    if (p.status != RowStatus::ok && p.status != RowStatus::interrupted && p.status != RowStatus::skipped)
      lines.push_back(fmt::format("{}: {}: {}", name_of(p.status), p.part.name, p.reason));
  }
  lines.insert(lines.end(), report.notes.begin(), report.notes.end());
  return lines;
}

// The question of each part, and what its rows say to it.
std::string answers_markdown(const StudyReport& report) {
  std::string text;
  for (const PartReport& p : report.parts) {
    if (p.answers.empty()) continue;
    text += fmt::format("\n### {}\n\n{}.\n\n", p.part.name, markdown_sentence(std::string(p.part.answers)));
    for (const std::string& s : p.answers) text += fmt::format("- {}\n", markdown_sentence(s));
  }
  return text.empty() ? text : "\n## Answers\n" + text;
}

std::vector<std::pair<std::string, std::string>> reductions(const StudyRequest& request) {
  std::vector<std::pair<std::string, std::string>> all;
  if (!tiny(request)) return all;
  for (const StudyPart& part : request.parts) {
    const std::string less = reduced(part);
    all.emplace_back(part.name, less.empty() ? "as at full scale" : less);
  }
  return all;
}

Json head_json(const StudyRequest& r) {
  return {{"command", "study"},           {"study", r.study},
          {"scale", name_of(r.scale)},    {"device", r.device},
          {"device_name", r.device_name}, {"build_id", build_info().build_id},
          {"folder", r.folder()}};
}

}  // namespace

StudyPage study_page(const StudyReport& report, bool wide) {
  const StudyRequest& r = report.request;
  StudyPage page;
  page.place = fmt::format("{}: {}", title(r), place(r));
  if (tiny(r)) page.place += fmt::format("\n{}", kReduced);
  page.columns = schema().forms();
  page.shown.wide = wide;
  page.rows = rows_of(report);
  page.notes = {"",
                fmt::format("{} of {} parts done, {:.0f} s in total; tables and charts in {}, beginning with "
                            "study.md",
                            report.count(RowStatus::ok), report.parts.size(), report.seconds(), r.folder())};
  for (std::string& line : sentences(report)) page.notes.push_back(std::move(line));
  if (tiny(r)) page.notes.insert(page.notes.end(), {"", "reduced:"});
  for (const auto& [name, less] : reductions(r)) page.notes.push_back(fmt::format("  {}: {}", name, less));
  page.json = head_json(r);
  page.json.update({{"stopped", report.stopped()},
                    {"seconds", report.seconds()},
                    {"parts", page.rows},
                    {"remarks", report.notes}});
  return page;
}

std::string study_markdown(const StudyReport& report) {
  const StudyRequest& r = report.request;
  std::string text = fmt::format("# kiln {}\n\n{}. {} of {} parts done, {:.0f} s in total.\n", title(r),
                                 markdown_sentence(place(r)), report.count(RowStatus::ok),
                                 report.parts.size(), report.seconds());
  if (tiny(r)) text += fmt::format("\n{}\n", kReduced);
  text += "\n";
  std::vector<Json> rows = rows_of(report);
  for (Json& row : rows) {
    const std::string file = text_at(row, "page");
    if (!file.empty()) row["page"] = fmt::format("[{0}]({0})", file);
  }
  const RowTable table = row_table(schema().forms(), rows, {.wide = true});
  const auto& titles = table.lines.front();
  const auto links = std::find(titles.begin(), titles.end(), "tables") - titles.begin();
  text += markdown_table(table.lines, table.left, static_cast<std::size_t>(links));
  for (const std::string& line : sentences(report)) text += fmt::format("\n{}.\n", markdown_sentence(line));
  text += answers_markdown(report);
  std::string commands;
  for (const PartReport& p : report.parts) commands += shell_line(p.args) + "\n";
  text += "\n## Command lines\n\nEach can be run by hand.\n\n" + markdown_fence(commands);
  if (tiny(r)) {
    text += "\n## Reduced\n\n";
    for (const auto& [name, less] : reductions(r)) text += fmt::format("- {}: {}\n", name, less);
  }
  return text;
}

std::string study_part_page(const StudyRequest& request, const PartReport& part, const std::string& printed) {
  std::string text = fmt::format("# {}\n\n{}: {}.\n\n{}\n", part.part.name, title(request), part.part.answers,
                                 markdown_fence("$ " + shell_line(part.args)));
  text += fmt::format("{}, {:.1f} s.\n", markdown_sentence(place(request)), part.seconds);
  if (tiny(request) && !reduced(part.part).empty())
    text += fmt::format("\nReduced: {}.\n", reduced(part.part));
  if (part.status != RowStatus::ok)
    text += fmt::format("\n{}: {}.\n", name_of(part.status), markdown_sentence(part.reason));
  if (!part.answers.empty()) {
    text += "\n## Answer\n\n";
    for (const std::string& s : part.answers) text += fmt::format("- {}\n", markdown_sentence(s));
    text += "\n## Tables\n";
  }
  if (!printed.empty()) text += "\n" + (part.part.markdown ? printed : markdown_fence(printed));
  for (const std::string& chart : part.charts) text += fmt::format("\n![{0}]({0})\n", chart);
  return text;
}

std::string study_list_text(const StudyRequest& request) {
  std::string text;
  for (const PartReport& p : plan_study(request)) {
    if (!p.asked) continue;
    text += fmt::format("# {}: {}\n{}\n", p.part.name, p.part.answers, shell_line(p.args));
    if (const std::string less = tiny(request) ? reduced(p.part) : ""; !less.empty())
      text += fmt::format("# reduced: {}\n", less);
  }
  return text;
}

std::string study_list_json(const StudyRequest& request) {
  Json parts = Json::array();
  for (const PartReport& p : plan_study(request)) {
    if (!p.asked) continue;
    const Json row = schema().row({request, p});
    Json part = Json::object();  // what is known of one that was not run
    for (const char* key : {"name", "answers", "command", "words", "reduced"}) part[key] = row.at(key);
    parts.push_back(std::move(part));
  }
  Json page = head_json(request);
  page["parts"] = parts;
  return page.dump(2) + "\n";
}

}  // namespace kiln
