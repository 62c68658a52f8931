#include "studies/course/render.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/build_info.h"
#include "studies/format.h"
#include "report/tables/text_table.h"

namespace kiln::cli {
namespace {

using nlohmann::ordered_json;
using Status = PartReport::Status;

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
    "figures say nothing about large models. What was reduced in each part stands below.";

std::string seconds_cell(const PartReport& p) {
  return p.time.empty() ? "-" : fmt::format("{:.1f}", p.seconds);
}

std::string rows_cell(const PartReport& p) {
  if (p.time.empty()) return "-";
  return p.no_memory == 0 ? fmt::format("{}", p.rows) : fmt::format("{} ({} OOM)", p.rows, p.no_memory);
}

std::string status_cell(const PartReport& p) {
  return fmt::format("{}{}", name_of(p.status), p.reused ? ", before" : "");
}

// A page has links, and room for what each part answers.
TextTable part_table(const StudyReport& report, bool page) {
  TextTable table = {{"part", "status", "tables", "s", "rows", "pictures"}};
  if (page) table.front().insert(table.front().begin() + 1, "what it answers");
  for (const PartReport& p : report.parts) {
    std::string file = p.time.empty() ? "-" : fmt::format("{}.md", p.part.name);
    if (page && !p.time.empty()) file = fmt::format("[{0}]({0})", file);
    std::vector<std::string> line = {
        std::string(p.part.name), status_cell(p), file,
        seconds_cell(p),          rows_cell(p),   fmt::format("{}", p.pictures.size())};
    if (page) line.insert(line.begin() + 1, std::string(p.part.answers));
    table.push_back(std::move(line));
  }
  return table;
}

std::vector<std::string> sentences(const StudyReport& report) {
  std::vector<std::string> lines;
  for (const PartReport& p : report.parts) {
    if (p.status != Status::done && p.status != Status::left)
      lines.push_back(fmt::format("{}: {}: {}", name_of(p.status), p.part.name, p.reason));
  }
  lines.insert(lines.end(), report.remarks.begin(), report.remarks.end());
  return lines;
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

ordered_json part_json(const StudyRequest& request, const PartReport& p) {
  return {{"name", p.part.name},
          {"answers", p.part.answers},
          {"command", shell_line(p.words)},
          {"words", p.words},
          {"reduced", tiny(request) ? reduced(p.part) : std::string()}};
}

ordered_json head_json(const StudyRequest& r) {
  return {{"command", "study"},           {"study", r.study},
          {"scale", name_of(r.scale)},    {"device", r.device},
          {"device_name", r.device_name}, {"build_id", build_info().build_id},
          {"folder", r.folder()}};
}

}  // namespace

std::string study_text(const StudyReport& report) {
  const StudyRequest& r = report.request;
  std::string text = fmt::format("{}: {}\n", title(r), place(r));
  if (tiny(r)) text += fmt::format("{}\n", kReduced);
  text += "\n";
  text += aligned(part_table(report, false), 3);
  text += fmt::format(
      "\n{} of {} parts done, {:.0f} s in all; tables and pictures in {}, beginning with study.md\n",
      report.count(Status::done), report.parts.size(), report.seconds(), r.folder());
  for (const std::string& line : sentences(report)) text += line + "\n";
  if (!tiny(r)) return text;
  text += "\nreduced:\n";
  for (const auto& [name, less] : reductions(r)) text += fmt::format("  {}: {}\n", name, less);
  return text;
}

std::string study_markdown(const StudyReport& report) {
  const StudyRequest& r = report.request;
  std::string text = fmt::format("# kiln {}\n\n{}. {} of {} parts done, {:.0f} s in all.\n", title(r),
                                 place(r), report.count(Status::done), report.parts.size(), report.seconds());
  if (tiny(r)) text += fmt::format("\n{}\n", kReduced);
  text += "\n";
  text += markdown_table(part_table(report, true), 4);
  for (const std::string& line : sentences(report)) text += fmt::format("\n{}.\n", line);
  text += "\n## Command lines\n\nEach can be run by hand.\n\n```\n";
  for (const PartReport& p : report.parts) text += shell_line(p.words) + "\n";
  text += "```\n";
  if (tiny(r)) {
    text += "\n## Reduced\n\n";
    for (const auto& [name, less] : reductions(r)) text += fmt::format("- {}: {}\n", name, less);
  }
  return text;
}

std::string study_json(const StudyReport& report) {
  ordered_json parts = ordered_json::array();
  for (const PartReport& p : report.parts) {
    ordered_json part = part_json(report.request, p);
    part.update({{"id", p.id},
                 {"asked", p.asked},
                 {"status", name_of(p.status)},
                 {"reused", p.reused},
                 {"seconds", p.seconds},
                 {"time", p.time},
                 {"reason", p.reason},
                 {"rows", p.rows},
                 {"no_memory", p.no_memory},
                 {"page", p.time.empty() ? "" : fmt::format("{}.md", p.part.name)},
                 {"pictures", p.pictures}});
    parts.push_back(std::move(part));
  }
  ordered_json page = head_json(report.request);
  page.update({{"stopped", report.stopped()},
               {"seconds", report.seconds()},
               {"parts", parts},
               {"remarks", report.remarks}});
  return dump(page, 2) + "\n";
}

std::string study_part_page(const StudyRequest& request, const PartReport& part, const std::string& printed) {
  std::string text = fmt::format("# {}\n\n{}: {}.\n\n```\n$ {}\n```\n\n", part.part.name, title(request),
                                 part.part.answers, shell_line(part.words));
  text += fmt::format("{}, {:.1f} s.\n", place(request), part.seconds);
  if (tiny(request) && !reduced(part.part).empty())
    text += fmt::format("\nReduced: {}.\n", reduced(part.part));
  if (part.status != Status::done) text += fmt::format("\n{}: {}.\n", name_of(part.status), part.reason);
  if (!printed.empty())
    text += part.part.markdown ? fmt::format("\n{}", printed) : fmt::format("\n```\n{}```\n", printed);
  for (const std::string& picture : part.pictures) text += fmt::format("\n![{0}]({0})\n", picture);
  return text;
}

std::string study_list_text(const StudyRequest& request) {
  std::string text;
  for (const PartReport& p : plan_study(request)) {
    if (!p.asked) continue;
    text += fmt::format("# {}: {}\n{}\n", p.part.name, p.part.answers, shell_line(p.words));
    if (const std::string less = tiny(request) ? reduced(p.part) : ""; !less.empty())
      text += fmt::format("# reduced: {}\n", less);
  }
  return text;
}

std::string study_list_json(const StudyRequest& request) {
  ordered_json parts = ordered_json::array();
  for (const PartReport& p : plan_study(request)) {
    if (p.asked) parts.push_back(part_json(request, p));
  }
  ordered_json page = head_json(request);
  page["parts"] = parts;
  return dump(page, 2) + "\n";
}

}  // namespace kiln::cli
