#include "report/html/document_html.h"

#include <fmt/format.h>

#include <algorithm>

#include "report/html/document_style.h"
#include "report/text/escape.h"

namespace kiln {
namespace {

using Kind = DocumentBlock::Kind;

constexpr std::size_t kFoldedRows = 40;  // a longer table shows so many, and the rest on a click

std::string escaped(std::string_view text) { return xml_escaped(text); }

// `Code` in single backticks, as sentences of ours have it; all else is text.
std::string sentence_html(const std::string& text) {
  std::string html;
  bool code = false;
  for (std::size_t from = 0; from <= text.size();) {
    const std::size_t tick = text.find('`', from);
    const bool closes = tick != std::string::npos && (code || text.find('`', tick + 1) != std::string::npos);
    html += escaped(std::string_view(text).substr(from, closes ? tick - from : std::string_view::npos));
    if (!closes) break;
    html += code ? "</code>" : "<code>";
    code = !code;
    from = tick + 1;
  }
  return html;
}

std::string mark_html(std::string_view mark) {
  if (mark.empty()) return {};
  return fmt::format(" <span class=\"mark{}\">{}</span>", is_bad_mark(mark) ? " bad" : "", escaped(mark));
}

std::string row_html(const std::vector<std::string>& cells, std::size_t left, const char* tag,
                     std::string_view mark) {
  std::string html = is_bad_mark(mark) ? "<tr class=\"bad\">" : "<tr>";
  for (std::size_t i = 0; i < cells.size(); ++i)
    html += fmt::format("<{0}{1}>{2}</{0}>", tag, i < left ? "" : " class=\"n\"", sentence_html(cells[i]));
  return html + "</tr>\n";
}

std::string rows_html(const DocumentBlock& block, std::size_t from, std::size_t to) {
  std::string html = fmt::format("<div class=\"table\"><table><thead>{}</thead><tbody>\n",
                                 row_html(block.table.front(), block.left, "th", {}));
  for (std::size_t i = from; i < to; ++i)
    html += row_html(block.table[i], block.left, "td",
                     i - 1 < block.row_marks.size() ? block.row_marks[i - 1] : std::string());
  return html + "</tbody></table></div>\n";
}

std::string table_html(const DocumentBlock& block) {
  const std::size_t rows = block.table.size();
  if (rows <= 1 + kFoldedRows) return rows_html(block, 1, rows);
  return rows_html(block, 1, 1 + kFoldedRows) +
         fmt::format("<details><summary>{} more rows</summary>\n{}</details>\n", rows - 1 - kFoldedRows,
                     rows_html(block, 1 + kFoldedRows, rows));
}

std::string chart_html(const DocumentChart& chart) {
  const std::string picture = chart.foreign
                                  ? fmt::format("<img src=\"data:image/svg+xml;base64,{}\" alt=\"{}\">",
                                                base64(chart.chart.svg), escaped(chart.alt))
                                  : chart.chart.svg;
  return fmt::format("<figure role=\"img\" aria-label=\"{}\">{}</figure>\n", escaped(chart.alt), picture);
}

std::string block_html(const DocumentBlock& block) {
  std::string html;
  switch (block.kind) {
    case Kind::paragraph:
      for (const std::string& line : block.lines) html += sentence_html(line) + " ";
      return fmt::format("<p>{}</p>\n", html);
    case Kind::bullets:
      for (const std::string& line : block.lines) html += fmt::format("<li>{}</li>\n", sentence_html(line));
      return fmt::format("<ul>\n{}</ul>\n", html);
    case Kind::table:
      return table_html(block);
    case Kind::chart:
      return chart_html(block.chart);
    case Kind::command:
      return fmt::format("<pre><code>{}</code></pre>\n",
                         escaped(fmt::format("{}", fmt::join(block.lines, " "))));
  }
  return {};
}

// Links to the chapters; of each how many of its sections are marked as bad.
std::string contents_html(const Document& document) {
  std::string html = "<nav>\n";
  for (std::size_t i = 0; i < document.sections.size(); ++i) {
    const DocumentSection& s = document.sections[i];
    if (s.level != 2 || s.anchor.empty()) continue;
    std::size_t bad = 0;
    for (std::size_t k = i + 1; k < document.sections.size() && document.sections[k].level > 2; ++k)
      bad += is_bad_mark(document.sections[k].mark) ? 1 : 0;
    html += fmt::format("<a href=\"#{}\">{}{}</a>\n", escaped(s.anchor), sentence_html(s.title),
                        bad == 0 ? "" : fmt::format(" <em>({} open)</em>", bad));
  }
  return html + "</nav>\n";
}

}  // namespace

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t n = std::min<std::size_t>(3, bytes.size() - i);
    unsigned word = 0;
    for (std::size_t k = 0; k < 3; ++k)
      word = word << 8 | (k < n ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    for (std::size_t k = 0; k < 4; ++k) text += k <= n ? kDigits[word >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

std::string document_html(const Document& document) {
  std::string html = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
      "img-src data:\">\n<title>{0}</title>\n<meta name=\"viewport\" content=\"width=device-width, "
      "initial-scale=1\">\n<style>{1}</style></head><body><main>\n<h1>{0}</h1>\n",
      escaped(document.title), kDocumentStyle);
  bool listed = false;
  for (const DocumentSection& s : document.sections) {
    if (!s.title.empty() && !listed) {
      html += contents_html(document);
      listed = true;
    }
    if (!s.title.empty())
      html += fmt::format("<h{0} id=\"{1}\">{2}{3}</h{0}>\n", s.level, escaped(s.anchor),
                          sentence_html(s.title), mark_html(s.mark));
    for (const DocumentBlock& block : s.blocks) html += block_html(block);
  }
  return html + "</main></body></html>\n";
}

}  // namespace kiln
