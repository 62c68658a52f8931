#include "studies/report/report_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/json.h"
#include "report/text/escape.h"
#include "rows/row_status.h"
#include "rows/row_values.h"
#include "studies/ablation/ablation_charts.h"
#include "studies/ablation/ablation_tables.h"
#include "studies/report/stored_rows.h"
#include "studies/step/step_studies.h"

namespace kiln {
namespace {

// Groups of rows, each under a name, in the order the names first appeared.
struct Group {
  std::string name;
  std::vector<Json> rows;
};

template <class Name>
std::vector<Group> grouped(std::span<const Json> rows, Name name) {
  std::vector<Group> groups;
  for (const Json& row : rows) {
    const std::string key = name(row);
    const auto known =
        std::find_if(groups.begin(), groups.end(), [&](const Group& g) { return g.name == key; });
    (known == groups.end() ? groups.emplace_back(Group{key, {}}) : *known).rows.push_back(row);
  }
  return groups;
}

std::vector<Json> rows_of(std::span<const Json> rows, std::string_view command) {
  std::vector<Json> found;
  for (const Json& row : rows) {
    if (text_at(row, "command") == command) found.push_back(row);
  }
  return found;
}

// Times that were compared with nothing enter no report. What has no times says why.
bool is_unverified(const Json& row) {
  return status_of(row) == RowStatus::ok && gate_of(row) != Gate::passed;
}

std::string joined(const std::set<std::string>& words) { return fmt::format("{}", fmt::join(words, "; ")); }

class Writer {
 public:
  explicit Writer(std::string folder) : folder_(std::move(folder)) {}

  void ablations(std::span<const Json> rows) {
    for (const Group& study : grouped(rows, [](const Json& r) { return text_at(r, "study"); })) {
      const std::vector<AblationLine> lines = ablation_lines(study.rows);
      const Json& row = lines.front().row;
      const std::size_t number = ++page_.studies;
      count(study.rows.size(), lines.size());
      const auto word = [&](const char* key) { return markdown_escaped(text_at(row, key)); };
      text_ += fmt::format("\n## Ablation {}: {}, batch {}, context {}\n\nOn {}.\n\n", number, word("size"),
                           word("batch"), word("ctx"), markdown_escaped(place_of(row)));
      for (const std::string& line : ablation_sentences(lines))
        text_ += fmt::format("- {}\n", markdown_sentence(line));
      text_ += "\n### Speed-up\n\n" + markdown_table(speedup_table(lines), 1);
      chart(fmt::format("ablation-{}-speedup", number), "speed-up of every row", speedup_chart(lines));
      text_ += "\n### Memory\n\nIn MiB.\n\n" + markdown_table(ablation_memory_table(lines), 1);
      chart(fmt::format("ablation-{}-memory", number), "peak memory of every row",
            ablation_memory_chart(lines));
      text_ += "\n### Gate\n\nRelative errors and tolerances.\n\n" + markdown_table(gate_table(lines), 3);
    }
  }

  void steps(std::vector<Json> rows) {
    unverified_ += std::erase_if(rows, is_unverified);
    for (const Group& place : grouped(rows, place_of)) {
      const std::vector<Json> latest = latest_rows(place.rows);
      count(place.rows.size(), latest.size());
      const RowTable table = step_rows_table(latest);
      text_ += fmt::format("\n## Steps (`bench step`)\n\nOn {}.\n\n{}", markdown_escaped(place.name),
                           markdown_table(table.lines, table.left));
      chart(fmt::format("steps-{}", ++steps_), "median time of every step", step_rows_chart(latest));
      if (const auto pairs = step_pairs(latest); !pairs.empty())
        text_ += "\nComparisons:\n\n" + markdown_table(pair_table(pairs), 5);
      if (const auto scaling_fits = step_scaling(latest); !scaling_fits.empty())
        text_ += "\nGrowth of time:\n\n" + markdown_table(scaling_table(scaling_fits), 2);
    }
  }

  void memory(std::span<const Json> rows) {
    for (const Group& place : grouped(rows, place_of)) {
      const std::vector<Json> latest = latest_rows(place.rows);
      count(place.rows.size(), latest.size());
      const RowTable table = memory_rows_table(latest);
      text_ += fmt::format("\n## Memory of a step (`memory`)\n\nOn {}; peaks in MiB.\n\n{}",
                           markdown_escaped(place.name), markdown_table(table.lines, table.left));
      chart(fmt::format("memory-{}", ++memories_), "predicted peak of every row", memory_rows_chart(latest));
    }
  }

  ReportPage finish(std::span<const Json> rows, std::vector<std::string> notes) {
    std::set<std::string> machines, builds;
    std::string first, last;
    for (const Json& row : rows) {
      if (row.contains("host") && row["host"].contains("device_name")) machines.insert(machine_of(row));
      if (const std::string b = text_at(row, "build_id"); !b.empty()) builds.insert(b);
      const std::string time = text_at(row, "time");
      if (first.empty() || time < first) first = time;
      last = std::max(last, time);
    }
    if (machines.size() > 1)
      notes.push_back(
          fmt::format("rows of {} machines: {}; separate tables", machines.size(), joined(machines)));
    if (builds.size() > 1)
      notes.push_back(fmt::format("rows of {} builds: {}; separate tables", builds.size(), joined(builds)));
    if (unverified_ > 0)
      notes.push_back(
          fmt::format("{} row{} of bench step {} compared with nothing (gate not-verified): left out",
                      unverified_, unverified_ == 1 ? "" : "s", unverified_ == 1 ? "was" : "were"));
    if (superseded_ > 0)
      notes.push_back(fmt::format("{} row{} measured again later: only the latest of each is shown",
                                  superseded_, superseded_ == 1 ? " was" : "s were"));
    std::string head =
        fmt::format("# kiln report\n\n{} stored rows, {} of them below", rows.size(), page_.rows);
    head += fmt::format("; measured {} to {}.\n", markdown_escaped(first), markdown_escaped(last));
    if (!notes.empty()) head += "\n";
    for (const std::string& line : notes) head += fmt::format("- {}\n", markdown_sentence(line));
    page_.notes = std::move(notes);
    page_.markdown = head + text_;
    return page_;
  }

 private:
  void count(std::size_t stored, std::size_t shown) {
    page_.rows += shown;
    superseded_ += stored - shown;
  }

  void chart(const std::string& name, const std::string& words, const BarChart& chart) {
    page_.charts.push_back({name + ".svg", bar_chart_svg(chart)});
    text_ += fmt::format("\n![{}]({}/{}.svg)\n", words, folder_, name);
  }

  std::string folder_, text_;
  ReportPage page_;
  int steps_ = 0, memories_ = 0;
  std::size_t unverified_ = 0;  // rows that are left out
  std::size_t superseded_ = 0;  // rows in place of which a later one is shown
};

}  // namespace

ReportPage make_report(std::span<const Json> rows, const std::vector<std::string>& notes,
                       const std::string& folder) {
  Writer writer(folder);
  writer.ablations(rows_of(rows, "ablate"));
  writer.steps(rows_of(rows, "bench step"));
  writer.memory(rows_of(rows, "memory"));
  return writer.finish(rows, notes);
}

}  // namespace kiln
