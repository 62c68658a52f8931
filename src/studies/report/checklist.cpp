#include "studies/report/checklist.h"

#include <fmt/format.h>

#include "studies/report/chapters/row_facts.h"

namespace kiln {
namespace {

std::string rows_text(const AnsweredQuestion& q) {
  if (q.rows == 0) return "-";
  return fmt::format("{}{}", plural(q.rows, "row"),
                     q.time.empty() ? "" : fmt::format(", {}", q.time.substr(0, 16)));
}

std::string figures_text(const AnsweredQuestion& q) {
  std::vector<std::string> names;
  for (const AnswerChart& c : q.answer.charts) names.push_back(c.chart.name);
  names.insert(names.end(), q.answer.files.begin(), q.answer.files.end());
  return names.empty() ? "-" : fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

std::string anchor_of(const Question& question) {
  std::string anchor = "q-";
  for (const char c : fmt::format("{} {}", question.number, question.heading)) {
    const bool word = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (word)
      anchor += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    else if (anchor.back() != '-')
      anchor += '-';
  }
  return anchor;
}

DocumentSection checklist_section(const std::vector<AnsweredChapter>& chapters) {
  DocumentSection s;
  s.anchor = "checklist";
  s.title = "Checklist";
  TextTable table = {{"problem", "no.", "question", "state", "rows", "figures", "command"}};
  std::vector<std::string> marks;
  for (const AnsweredChapter& c : chapters)
    for (const AnsweredQuestion& q : c.questions) {
      table.push_back({std::string(q.question.problem), std::string(q.question.number),
                       std::string(q.question.heading), std::string(name_of(q.state)), rows_text(q),
                       figures_text(q), std::string(q.question.fill)});
      marks.emplace_back(name_of(q.state));
    }
  s.say(
      {"missing: no row says it yet; stale: measured by another build than this one; unverified: none of its "
       "rows passed a "
       "gate. The command measures it."});
  s.tabulate(std::move(table), 7, std::move(marks));
  return s;
}

}  // namespace kiln
