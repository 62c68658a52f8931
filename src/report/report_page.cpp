#include "studies/report/report_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "studies/ablation/ablation_charts.h"
#include "studies/ablation/ablation_tables.h"
#include "report/result_table.h"
#include "report/step_studies.h"
#include "studies/report/stored_rows.h"

namespace kiln {
namespace {

using nlohmann::json;

// Rows that belong together, under a name, in the order the names first came up.
struct Group {
  std::string name;
  std::vector<json> rows;
};

template <class Name>
std::vector<Group> grouped(std::span<const json> rows, Name name) {
  std::vector<Group> groups;
  for (const json& row : rows) {
    const std::string key = name(row);
    const auto known =
        std::find_if(groups.begin(), groups.end(), [&](const Group& g) { return g.name == key; });
    (known == groups.end() ? groups.emplace_back(Group{key, {}}) : *known).rows.push_back(row);
  }
  return groups;
}

std::vector<json> rows_of(std::span<const json> rows, std::string_view command) {
  std::vector<json> found;
  for (const json& row : rows) {
    if (word_at(row, "command") == command) found.push_back(row);
  }
  return found;
}

std::string machine_of(const json& row) {
  const auto host = row.find("host");
  const std::string name =
      host != row.end() && host->is_object() ? word_at(*host, "device_name") : std::string();
  const std::string device = word_at(row, "device");
  return name.empty() ? device : fmt::format("{} ({})", device, name);
}

std::string place_of(const json& row) {
  const auto host = row.find("host");
  const std::string n = host != row.end() && host->is_object() ? word_at(*host, "threads") : std::string();
  return fmt::format("{}{}, build {}", machine_of(row),
                     n.empty() ? "" : fmt::format(", {} thread{}", n, n == "1" ? "" : "s"),
                     word_at(row, "build_id"));
}

std::string joined(const std::set<std::string>& words) { return fmt::format("{}", fmt::join(words, "; ")); }

class Writer {
 public:
  explicit Writer(std::string folder) : folder_(std::move(folder)) {}

  void ablations(std::span<const json> rows) {
    for (const Group& study : grouped(rows, [](const json& r) { return word_at(r, "study"); })) {
      const std::vector<AblationLine> lines = ablation_lines(study.rows);
      const json& row = lines.front().row;
      const std::size_t number = ++page_.studies;
      count(study.rows.size(), lines.size());
      text_ += fmt::format("\n## Ablation {}: {}, batch {}, context {}\n\nOn {}.\n\n", number,
                           word_at(row, "size"), word_at(row, "batch"), word_at(row, "ctx"), place_of(row));
      for (const std::string& line : ablation_sentences(lines)) text_ += fmt::format("- {}\n", line);
      text_ += "\n### Speed-up\n\n" + markdown_table(speedup_table(lines), 1);
      picture(fmt::format("ablation-{}-speedup", number), "speed-up of every row", speedup_chart(lines));
      text_ += "\n### Memory\n\nIn MiB.\n\n" + markdown_table(ablation_memory_table(lines), 1);
      picture(fmt::format("ablation-{}-memory", number), "peak memory of every row",
              ablation_memory_chart(lines));
      text_ +=
          "\n### Gate\n\nRelative errors beside what is allowed.\n\n" + markdown_table(gate_table(lines), 3);
    }
  }

  void steps(std::span<const json> rows) {
    for (const Group& place : grouped(rows, place_of)) {
      const std::vector<json> latest = latest_rows(place.rows);
      count(place.rows.size(), latest.size());
      const ResultTable table = step_rows_table(latest);
      text_ += fmt::format("\n## Steps (`bench step`)\n\nOn {}.\n\n{}", place.name,
                           markdown_table(table.table, table.left));
      picture(fmt::format("steps-{}", ++steps_), "median time of every step", step_rows_chart(latest));
      if (const auto pairs = step_pairs(latest); !pairs.empty())
        text_ += "\nOne against the other:\n\n" + markdown_table(pair_table(pairs), 5);
      if (const auto laws = step_scaling(latest); !laws.empty())
        text_ += "\nHow the time grows:\n\n" + markdown_table(scaling_table(laws), 2);
    }
  }

  void memory(std::span<const json> rows) {
    for (const Group& place : grouped(rows, place_of)) {
      const std::vector<json> latest = latest_rows(place.rows);
      count(place.rows.size(), latest.size());
      const ResultTable table = memory_rows_table(latest);
      text_ += fmt::format("\n## Memory of a step (`memory`)\n\nOn {}; peaks in MiB.\n\n{}", place.name,
                           markdown_table(table.table, table.left));
      picture(fmt::format("memory-{}", ++memories_), "predicted peak of every row",
              memory_rows_chart(latest));
    }
  }

  ReportPage finish(std::span<const json> rows, std::vector<std::string> remarks) {
    std::set<std::string> machines, builds;
    std::string first, last;
    for (const json& row : rows) {
      if (row.contains("host") && row["host"].contains("device_name")) machines.insert(machine_of(row));
      if (const std::string b = word_at(row, "build_id"); !b.empty()) builds.insert(b);
      const std::string time = word_at(row, "time");
      if (first.empty() || time < first) first = time;
      last = std::max(last, time);
    }
    if (machines.size() > 1)
      remarks.push_back(fmt::format("rows of {} machines: {}; each has tables of its own", machines.size(),
                                    joined(machines)));
    if (builds.size() > 1)
      remarks.push_back(
          fmt::format("rows of {} builds: {}; each has tables of its own", builds.size(), joined(builds)));
    if (superseded_ > 0)
      remarks.push_back(fmt::format("{} row{} measured again later: of each kind the latest is shown",
                                    superseded_, superseded_ == 1 ? " was" : "s were"));
    std::string head =
        fmt::format("# kiln report\n\n{} stored rows, {} of them below", rows.size(), page_.rows);
    head += fmt::format("; measured {} to {}.\n", first, last);
    if (!remarks.empty()) head += "\n";
    for (const std::string& line : remarks) head += fmt::format("- {}\n", line);
    page_.remarks = std::move(remarks);
    page_.markdown = head + text_;
    return page_;
  }

 private:
  void count(std::size_t stored, std::size_t shown) {
    page_.rows += shown;
    superseded_ += stored - shown;
  }

  void picture(const std::string& name, const std::string& words, const BarChart& chart) {
    page_.pictures.push_back({name + ".svg", bar_chart_svg(chart)});
    text_ += fmt::format("\n![{}]({}/{}.svg)\n", words, folder_, name);
  }

  std::string folder_, text_;
  ReportPage page_;
  int steps_ = 0, memories_ = 0;
  std::size_t superseded_ = 0;  // rows in place of which a later one is shown
};

}  // namespace

ReportPage make_report(std::span<const json> rows, const std::vector<std::string>& remarks,
                       const std::string& folder) {
  Writer writer(folder);
  writer.ablations(rows_of(rows, "ablate"));
  writer.steps(rows_of(rows, "bench step"));
  writer.memory(rows_of(rows, "memory"));
  return writer.finish(rows, remarks);
}

}  // namespace kiln
