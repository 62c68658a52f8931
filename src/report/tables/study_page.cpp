#include "report/tables/study_page.h"

#include <fmt/format.h>

#include <algorithm>

#include "report/text/escape.h"

namespace kiln {
std::string wrapped(std::string_view text, std::size_t width) {
  std::string out;
  for (std::size_t column = 0; !text.empty();) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    const bool fits = column + 1 + word.size() <= width;
    if (column > 0) out += fits ? ' ' : '\n';
    column = word.size() + (column > 0 && fits ? column + 1 : 0);
    out += word;
  }
  return out;
}

PageTable page_table(std::string heading, std::span<const ColumnForm> columns, const Json& rows,
                     const RowTableOptions& shown) {
  if (rows.empty()) return {std::move(heading), {}};
  RowTable table = row_table(columns, rows.items_of_array(), shown);
  return {std::move(heading), std::move(table.lines), table.left};
}

std::string quoted_note(const std::string& line, PageFormat format) {
  switch (format) {
    case PageFormat::markdown:
      return fmt::format("\n{}{}\n", markdown_sentence(line), line.ends_with('.') ? "" : ".");
    case PageFormat::latex:  // a comment ends with its line
      return fmt::format("% {}\n", shown_text(line));
    case PageFormat::csv:
      return {};
    default:
      return shown_lines(line) + "\n";
  }
}

std::string heading(const std::string& line, PageFormat format) {
  if (line.empty()) return "\n";
  switch (format) {
    case PageFormat::markdown:
      return fmt::format("\n{}:\n\n", markdown_sentence(line));
    case PageFormat::latex:
      return fmt::format("\n% {}\n", shown_text(line));
    default:
      return fmt::format("\n{}\n", shown_lines(line));
  }
}

namespace {

// The rows that share what is in their heading, in the order in which each first appears.
std::vector<std::pair<std::string, std::vector<Json>>> groups_of(const StudyPage& page) {
  std::vector<std::pair<std::string, std::vector<Json>>> groups;
  for (const Json& row : page.rows) {
    std::string name;
    for (const std::string_view key : page.shown.by) {
      for (const ColumnForm& c : page.columns)
        if (c.key == key) name += (name.empty() ? "" : "  ") + cell_text(row, c);
    }
    const auto at =
        std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == name; });
    if (at == groups.end())
      groups.push_back({name, {row}});
    else
      at->second.push_back(row);
  }
  return groups;
}

std::string rows_text(const StudyPage& page, PageFormat format) {
  std::string text;
  for (const auto& [name, rows] : groups_of(page)) {
    const RowTable table = row_table(page.columns, rows, page.shown);
    if (!name.empty())
      text += heading(name, format).substr(text.empty() ? 1 : 0);  // a blank line between two
    text += written(table.lines, table.left, format);
  }
  return text;
}

std::string title_text(const std::string& title, PageFormat format) {
  if (format == PageFormat::markdown) return fmt::format("\n## {}\n", markdown_escaped(title));
  return fmt::format("\n{} {}\n", format == PageFormat::text ? "===" : "%", shown_text(title));
}

std::string table_text(const StudyPage& page, const PageTable& t, PageFormat format) {
  const bool rows = t.table.size() > 1;
  if (!rows && t.lines.empty()) return {};  // a heading alone says nothing
  std::string text = !page.title.empty() && format == PageFormat::markdown
                         ? fmt::format("\n### {}\n\n", markdown_escaped(t.heading))
                         : heading(t.heading, format);
  if (rows) text += written(t.table, t.left, format);
  for (const std::string& line : t.lines)
    text += format == PageFormat::text ? wrapped(shown_lines(line)) + "\n" : quoted_note(line, format);
  return text;
}

}  // namespace

std::string written(const StudyPage& page, PageFormat format) {
  if (format == PageFormat::json) return page.json.dump(2) + "\n";
  if (format == PageFormat::csv) {
    for (const PageTable& t : page.tables)
      if (t.in_csv) return csv_table(t.table);
    std::vector<Json> all = page.rows;
    all.insert(all.end(), page.others.begin(), page.others.end());
    return csv_table(row_csv(page.columns, all, page.shown.axes));
  }
  std::string text;
  if (!page.title.empty()) text += title_text(page.title, format);
  if (!page.place.empty()) {
    text += format == PageFormat::markdown ? markdown_sentence(page.place) + ".\n\n"
            : format == PageFormat::latex  ? fmt::format("% {}\n", shown_text(page.place))
                                           : shown_lines(page.place) + "\n\n";
  }
  text += rows_text(page, format);
  for (const std::string& note : page.notes) text += quoted_note(note, format);
  for (const PageTable& t : page.tables) {
    const std::string table = table_text(page, t, format);
    text += std::string_view(table).substr(text.ends_with("\n\n") && table.starts_with('\n') ? 1 : 0);
  }
  for (const StudyPage& part : page.parts) text += written(part, format);
  return text;
}

}  // namespace kiln
