#include "report/tables/study_page.h"

#include <fmt/format.h>

#include <algorithm>

#include "report/tables/terminal_page.h"
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

// How a page is written, and how much of it did not fit.
struct Form {
  PageFormat format;
  std::size_t width = 0;   // of the terminal; 0: whatever it takes
  std::size_t hidden = 0;  // columns, of the table that lacks most
};

std::size_t longest_line(std::string_view text) {
  std::size_t longest = 0;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    longest = std::max(longest, line.size());
    text.remove_prefix(std::min(text.size(), line.size() + 1));
  }
  return longest;
}

// The last columns go first; a table keeps two.
std::string table_text(TextTable table, std::size_t left, Form& form) {
  constexpr std::size_t kLeast = 2;
  std::string text = written(table, left, form.format);
  if (form.width == 0) return text;
  std::size_t hidden = 0;
  while (longest_line(text) > form.width && table.front().size() > kLeast) {
    const std::size_t columns = table.front().size() - 1;
    for (auto& line : table) line.resize(std::min(line.size(), columns));
    ++hidden;
    text = written(table, std::min(left, table.front().size()), form.format);
  }
  form.hidden = std::max(form.hidden, hidden);
  return text;
}

std::string sentence(const std::string& line, const Form& form) {
  return form.width > 0 ? wrapped(shown_lines(line), form.width) + "\n" : quoted_note(line, form.format);
}

std::string rows_text(const StudyPage& page, Form& form) {
  std::string text;
  for (const auto& [name, rows] : groups_of(page)) {
    const RowTable table = row_table(page.columns, rows, page.shown);
    if (!name.empty())
      text += heading(name, form.format).substr(text.empty() ? 1 : 0);  // a blank line between two
    text += table_text(table.lines, table.left, form);
  }
  return text;
}

std::string title_text(const std::string& title, PageFormat format) {
  if (format == PageFormat::markdown) return fmt::format("\n## {}\n", markdown_escaped(title));
  return fmt::format("\n{} {}\n", format == PageFormat::text ? "===" : "%", shown_text(title));
}

std::string part_text(const StudyPage& page, const PageTable& t, Form& form) {
  const bool rows = t.table.size() > 1;
  if (!rows && t.lines.empty()) return {};  // a heading alone says nothing
  const PageFormat format = form.format;
  std::string text = !page.title.empty() && format == PageFormat::markdown
                         ? fmt::format("\n### {}\n\n", markdown_escaped(t.heading))
                         : heading(t.heading, format);
  if (rows) text += table_text(t.table, t.left, form);
  for (const std::string& line : t.lines)
    text += format == PageFormat::text && form.width == 0 ? wrapped(shown_lines(line)) + "\n"
                                                          : sentence(line, form);
  return text;
}

std::string page_text(const StudyPage& page, Form& form) {
  const PageFormat format = form.format;
  std::string text;
  if (!page.title.empty()) text += title_text(page.title, format);
  if (!page.place.empty()) {
    text += format == PageFormat::markdown ? markdown_sentence(page.place) + ".\n\n"
            : format == PageFormat::latex  ? fmt::format("% {}\n", shown_text(page.place))
                                           : sentence(page.place, form) + "\n";
  }
  text += rows_text(page, form);
  for (const std::string& note : page.notes) text += sentence(note, form);
  for (const PageTable& t : page.tables) {
    const std::string table = part_text(page, t, form);
    text += std::string_view(table).substr(text.ends_with("\n\n") && table.starts_with('\n') ? 1 : 0);
  }
  for (const StudyPage& part : page.parts) text += page_text(part, form);
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
  Form form{format};
  return page_text(page, form);
}

std::string terminal_text(const StudyPage& page, std::size_t width) {
  Form form{PageFormat::text, width};
  std::string text = page_text(page, form);
  if (form.hidden > 0)
    text += wrapped(fmt::format("{} column{} more with --wide, in a wider terminal, or with --format csv",
                                form.hidden, form.hidden == 1 ? "" : "s"),
                    width) +
            "\n";
  return text;
}

}  // namespace kiln
