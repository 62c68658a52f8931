#include "studies/report/report_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "rows/row_values.h"
#include "studies/report/chapters/answered.h"
#include "studies/report/chapters/row_facts.h"
#include "studies/report/checklist.h"
#include "studies/report/row_sections.h"
#include "studies/report/stored_rows.h"

namespace kiln {
namespace {

constexpr std::array<std::string_view, 4> kWriteups = {"profiling", "attention", "ddp", "sharding"};
constexpr std::array<std::string_view, 4> kWriteupTitles = {
    "Profiling and benchmarking", "Attention", "Data-parallel training", "Optimizer state sharding"};

std::string joined(const std::set<std::string>& words) { return fmt::format("{}", fmt::join(words, "; ")); }

// What rows have in common, or not.
struct Origins {
  std::set<std::string> machines, builds;
  std::string first, last;
};

Origins origins_of(Rows rows) {
  Origins o;
  for (const Json& row : rows) {
    const Json* host = row.find("host");
    if (host != nullptr && host->contains("device_name")) o.machines.insert(machine_of(row));
    if (const std::string b = text_at(row, "build_id"); !b.empty()) o.builds.insert(b);
    const std::string time = text_at(row, "time");
    if (!time.empty() && (o.first.empty() || time < o.first)) o.first = time;
    o.last = std::max(o.last, time);
  }
  return o;
}

void add_notes(const Origins& o, const RowSections& made, std::vector<std::string>& notes) {
  if (o.machines.size() > 1)
    notes.push_back(
        fmt::format("rows of {} machines: {}; separate tables", o.machines.size(), joined(o.machines)));
  if (o.builds.size() > 1)
    notes.push_back(fmt::format("rows of {} builds: {}; separate tables", o.builds.size(), joined(o.builds)));
  if (made.unverified > 0)
    notes.push_back(fmt::format("{} {} compared with nothing (gate not-verified): left out",
                                plural(made.unverified, "row"), made.unverified == 1 ? "was" : "were"));
  if (made.superseded > 0)
    notes.push_back(fmt::format("{} {} measured again later: only the latest of each is shown",
                                plural(made.superseded, "row"), made.superseded == 1 ? "was" : "were"));
}

// An answer as a section: what it says, or the command that would say it.
DocumentSection question_section(const AnsweredQuestion& q, const ReportOptions& options,
                                 const std::string& chapter) {
  DocumentSection s;
  s.level = 3;
  s.anchor = anchor_of(q.question);
  s.title = q.question.number.empty() ? std::string(q.question.heading)
                                      : fmt::format("{} {}", q.question.number, q.question.heading);
  if (q.state != AnswerState::measured) s.mark = name_of(q.state);
  if (q.state == AnswerState::missing || q.state == AnswerState::unverified) {
    s.say({q.state == AnswerState::missing
               ? "Not measured yet. This fills it:"
               : "Its rows passed no gate, so they are not shown. This measures it:"});
    s.command(std::string(q.question.fill));
    return s;
  }
  constexpr std::size_t kParagraph = 3;  // more sentences are easier to read one a line
  if (q.answer.sentences.size() > kParagraph)
    s.list(q.answer.sentences);
  else
    s.say(q.answer.sentences);
  for (const PageTable& t : q.answer.tables) {
    if (!t.heading.empty()) s.say({t.heading + ":"});
    s.tabulate(t.table, t.left);
  }
  for (const AnswerChart& c : q.answer.charts)
    s.draw({{fmt::format("{}-{}", chapter, c.chart.name), c.chart.svg}, c.alt});
  for (const std::string& name : q.answer.files) {
    const auto svg = options.picture ? options.picture(name) : std::nullopt;
    if (!svg) continue;
    std::string file = name.substr(name.rfind('/') + 1);
    if (file.ends_with(".svg")) file.resize(file.size() - 4);
    s.draw({{fmt::format("{}-{}", chapter, file), *svg}, name, /*foreign=*/true});
  }
  if (!q.place.empty())
    s.say({fmt::format("{} on {}; `{}`.", plural(q.rows, "row"), q.place, q.question.commands.front())});
  return s;
}

DocumentSection summary_section(const std::vector<AnsweredChapter>& chapters) {
  DocumentSection s;
  s.anchor = "summary";
  s.title = "Summary";
  std::vector<std::string> bullets;
  for (const AnsweredChapter& c : chapters) {
    const auto answered = std::find_if(c.questions.begin(), c.questions.end(), [](const AnsweredQuestion& q) {
      return q.rows > 0 && !q.answer.sentences.empty();
    });
    if (answered == c.questions.end()) continue;
    // The first chapter is what most have come for: fastest, smallest, largest single gain.
    const std::size_t most = c.chapter.name == "optimizations" ? 3 : 1;
    for (std::size_t i = 0; i < std::min(most, answered->answer.sentences.size()); ++i)
      bullets.push_back(fmt::format("{}: {}", c.chapter.title, answered->answer.sentences[i]));
  }
  if (bullets.empty()) bullets.emplace_back("Nothing was measured yet.");
  s.list(std::move(bullets));
  return s;
}

// How many questions are in each state: "12 measured, 3 stale".
std::string states_text(const std::vector<AnsweredChapter>& chapters) {
  std::vector<std::string> words;
  for (const AnswerState state : {AnswerState::measured, AnswerState::worked_out, AnswerState::stale,
                                  AnswerState::unverified, AnswerState::missing}) {
    std::size_t n = 0;
    for (const AnsweredChapter& c : chapters)
      n += static_cast<std::size_t>(
          std::count_if(c.questions.begin(), c.questions.end(),
                        [&](const AnsweredQuestion& q) { return q.state == state; }));
    if (n > 0) words.push_back(fmt::format("{} {}", n, name_of(state)));
  }
  return fmt::format("{}", fmt::join(words, ", "));
}

void add_chapters(const std::vector<AnsweredChapter>& chapters, const ReportOptions& options,
                  ReportPage& page) {
  for (const AnsweredChapter& c : chapters) {
    DocumentSection& head = page.document.sections.emplace_back();
    head.anchor = c.chapter.name;
    head.title = c.chapter.title;
    for (const AnsweredQuestion& q : c.questions) {
      page.document.sections.push_back(question_section(q, options, std::string(c.chapter.name)));
      ++page.questions;
      page.answered += q.state == AnswerState::measured || q.state == AnswerState::worked_out ? 1 : 0;
    }
  }
}

}  // namespace

std::vector<std::string_view> writeup_names() { return {kWriteups.begin(), kWriteups.end()}; }

ReportPage make_report(std::span<const Json> rows, const std::vector<std::string>& notes,
                       const ReportOptions& options) {
  ReportPage page;
  page.notes = notes;
  std::vector<AnsweredChapter> chapters = answer_chapters(rows, options.build);
  const auto writeup = std::find(kWriteups.begin(), kWriteups.end(), options.writeup);
  const bool whole = writeup == kWriteups.end();
  if (!whole)
    std::erase_if(chapters, [&](const AnsweredChapter& c) { return c.chapter.writeup != *writeup; });
  page.document.title =
      whole ? "kiln report"
            : std::string(kWriteupTitles[static_cast<std::size_t>(writeup - kWriteups.begin())]);

  RowSections made = row_sections(rows);
  const Origins origins = origins_of(rows);
  add_notes(origins, made, page.notes);
  page.rows = made.rows;
  page.studies = made.studies;

  DocumentSection& head = page.document.sections.emplace_back();
  const auto runs = rows_of(rows, "train").size();
  head.say({fmt::format("{} stored rows, {} of them below; measured {} to {}.", rows.size() - runs, made.rows,
                        origins.first, origins.last),
            fmt::format("Of the questions, {}.", states_text(chapters))});
  head.list(page.notes);
  page.document.sections.push_back(summary_section(chapters));
  add_chapters(chapters, options, page);
  page.document.sections.push_back(checklist_section(chapters));
  if (!whole) return page;
  DocumentSection& all = page.document.sections.emplace_back();
  all.anchor = "rows";
  all.title = "Rows";
  all.say({"Every row that is a figure: of each kind the latest of what measured the same thing."});
  for (DocumentSection& s : made.sections) page.document.sections.push_back(std::move(s));
  return page;
}

}  // namespace kiln
