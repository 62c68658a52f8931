#include "studies/report/row_sections.h"

#include <fmt/format.h>

#include <algorithm>

#include "rows/row_outcome.h"
#include "rows/row_values.h"
#include "studies/ablation/ablation_charts.h"
#include "studies/ablation/ablation_tables.h"
#include "studies/report/chapters/row_facts.h"
#include "studies/report/rows_page.h"
#include "studies/report/stored_rows.h"
#include "studies/row_tables.h"
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

constexpr std::size_t kMostBars = 60;  // of a chart: more are only in the table

// Times that were compared with nothing enter no report. What has no times says why.
bool is_unverified(const Json& row) {
  return status_of(row) == RowStatus::ok && gate_of(row) != Gate::passed;
}

class Writer {
 public:
  void ablations(std::span<const Json> rows) {
    for (const Group& study : grouped(rows, [](const Json& r) { return text_at(r, "study"); })) {
      const std::vector<AblationLine> lines = ablation_lines(study.rows);
      const Json& row = lines.front().row;
      const std::size_t number = ++made_.studies;
      count(study.rows.size(), lines.size());
      DocumentSection& s =
          section(fmt::format("Ablation {}: {}, batch {}, context {}", number, text_at(row, "size"),
                              text_at(row, "batch"), text_at(row, "ctx")));
      s.say({fmt::format("On {}.", place_of(row))});
      s.list(ablation_sentences(lines));
      s.say({"Speed-up:"});
      s.tabulate(speedup_table(lines), 1);
      draw(s, fmt::format("ablation-{}-speedup", number), "speed-up of every row", speedup_chart(lines));
      s.say({"Memory, in MiB:"});
      s.tabulate(ablation_memory_table(lines), 1);
      draw(s, fmt::format("ablation-{}-memory", number), "peak memory of every row",
           ablation_memory_chart(lines));
      s.say({"Gate, relative errors and tolerances:"});
      s.tabulate(gate_table(lines), 3);
    }
  }

  void steps(std::vector<Json> rows) {
    made_.unverified += std::erase_if(rows, is_unverified);
    int number = 0;
    for (const Group& place : grouped(rows, place_of)) {
      const std::vector<Json> latest = latest_rows(place.rows);
      count(place.rows.size(), latest.size());
      DocumentSection& s = section("Steps (`bench step`)");
      s.say({fmt::format("On {}.", place.name)});
      RowTable table = step_rows_table(latest);
      s.tabulate(std::move(table.lines), table.left);
      draw(s, fmt::format("steps-{}", ++number), "median time of every step", step_rows_chart(latest));
      if (const auto pairs = step_pairs(latest); !pairs.empty()) {
        s.say({"Comparisons:"});
        s.tabulate(pair_table(pairs), 5);
      }
      if (const auto scaling_fits = step_scaling(latest); !scaling_fits.empty()) {
        s.say({"Growth of time:"});
        s.tabulate(scaling_table(scaling_fits), 2);
      }
    }
  }

  void memory(std::span<const Json> rows) {
    int number = 0;
    for (const Group& place : grouped(rows, place_of)) {
      const std::vector<Json> latest = latest_rows(place.rows);
      count(place.rows.size(), latest.size());
      DocumentSection& s = section("Memory of a step (`memory`)");
      s.say({fmt::format("On {}; peaks in MiB.", place.name)});
      RowTable table = memory_rows_table(latest);
      s.tabulate(std::move(table.lines), table.left);
      draw(s, fmt::format("memory-{}", ++number), "predicted peak of every row", memory_rows_chart(latest));
    }
  }

  // Every other kind, with the columns its command shows.
  void others(std::vector<Json> rows) {
    std::erase_if(rows, [](const Json& r) {
      const std::string command = text_at(r, "command");
      return command == "ablate" || command == "bench step" || command == "memory" || command.empty();
    });
    made_.unverified += std::erase_if(rows, [](const Json& r) { return !belongs_in_tables(r); });
    for (const Group& kind :
         grouped(rows, [](const Json& r) { return text_at(r, "command") + "\n" + place_of(r); })) {
      const std::vector<Json> latest = latest_rows(kind.rows);
      const std::string command = text_at(latest.front(), "command");
      // Documents of studies without times are answers above, and no table.
      if (std::none_of(latest.begin(), latest.end(), [](const Json& r) { return number_at(r, "p50_ms"); }))
        continue;
      RowTable table = row_table(columns_of(command), latest);
      if (table.lines.empty() || table.lines.front().empty()) continue;
      count(kind.rows.size(), latest.size());
      DocumentSection& s = section(fmt::format("Rows of `{}`", command));
      s.say({fmt::format("On {}.", place_of(latest.front()))});
      s.tabulate(std::move(table.lines), table.left);
    }
  }

  RowSections finish() { return std::move(made_); }

 private:
  DocumentSection& section(std::string title) {
    DocumentSection& s = made_.sections.emplace_back();
    s.level = 3;
    s.anchor = fmt::format("rows-{}", made_.sections.size());
    s.title = std::move(title);
    return s;
  }

  void count(std::size_t stored, std::size_t shown) {
    made_.rows += shown;
    made_.superseded += stored - shown;
  }

  static void draw(DocumentSection& s, const std::string& name, const std::string& alt, BarChart chart) {
    if (chart.bars.size() > kMostBars) {
      s.say({fmt::format("The chart has the last {} of {} rows.", kMostBars, chart.bars.size())});
      chart.bars.erase(chart.bars.begin(), chart.bars.end() - static_cast<long>(kMostBars));
    }
    s.draw({{name, bar_chart_svg(chart)}, alt});
  }

  RowSections made_;
};

}  // namespace

RowSections row_sections(std::span<const Json> rows) {
  Writer writer;
  writer.ablations(rows_of(rows, "ablate"));
  writer.steps(rows_of(rows, "bench step"));
  writer.memory(rows_of(rows, "memory"));
  writer.others({rows.begin(), rows.end()});
  return writer.finish();
}

}  // namespace kiln
