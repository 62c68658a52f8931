#include "report/document/document.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "report/text/escape.h"

namespace kiln {
namespace {

using Kind = DocumentBlock::Kind;

std::string joined(const std::vector<std::string>& sentences) {
  std::string text;
  for (const std::string& s : sentences) {
    if (!text.empty()) text += ' ';
    text += markdown_sentence(s);
  }
  return text;
}

std::string block_markdown(const DocumentBlock& block, std::string_view charts) {
  switch (block.kind) {
    case Kind::paragraph:
      return joined(block.lines) + "\n";
    case Kind::bullets: {
      std::string text;
      for (const std::string& line : block.lines) text += fmt::format("- {}\n", markdown_sentence(line));
      return text;
    }
    case Kind::table:
      return markdown_table(block.table, block.left);
    case Kind::chart:
      return fmt::format("![{}]({}/{}.svg)\n", markdown_escaped(block.chart.alt), charts,
                         block.chart.chart.name);
    case Kind::command:
      return markdown_fence(fmt::format("{}", fmt::join(block.lines, "\n")) + "\n");
  }
  return {};
}

}  // namespace

void DocumentSection::say(std::vector<std::string> sentences) {
  if (!sentences.empty()) blocks.push_back({.kind = Kind::paragraph, .lines = std::move(sentences)});
}

void DocumentSection::list(std::vector<std::string> items) {
  if (!items.empty()) blocks.push_back({.kind = Kind::bullets, .lines = std::move(items)});
}

void DocumentSection::tabulate(TextTable table, std::size_t left, std::vector<std::string> row_marks) {
  if (table.size() < 2) return;
  blocks.push_back(
      {.kind = Kind::table, .table = std::move(table), .left = left, .row_marks = std::move(row_marks)});
}

void DocumentSection::draw(DocumentChart chart) {
  blocks.push_back({.kind = Kind::chart, .chart = std::move(chart)});
}

void DocumentSection::command(std::string line) {
  blocks.push_back({.kind = Kind::command, .lines = {std::move(line)}});
}

std::string document_markdown(const Document& document, std::string_view charts) {
  std::string text = fmt::format("# {}\n", markdown_escaped(document.title));
  for (const DocumentSection& s : document.sections) {
    if (!s.title.empty())
      text += fmt::format("\n{} {}{}\n", std::string(static_cast<std::size_t>(s.level), '#'),
                          markdown_sentence(s.title), s.mark.empty() ? "" : fmt::format(" ({})", s.mark));
    for (const DocumentBlock& block : s.blocks) {
      text += '\n';
      text += block_markdown(block, charts);
    }
  }
  return text;
}

std::vector<NamedChart> charts_of(const Document& document) {
  std::vector<NamedChart> charts;
  for (const DocumentSection& s : document.sections)
    for (const DocumentBlock& b : s.blocks)
      if (b.kind == Kind::chart) charts.push_back(b.chart.chart);
  return charts;
}

bool is_bad_mark(std::string_view mark) {
  constexpr std::array<std::string_view, 3> kBad = {"missing", "stale", "unverified"};
  return std::find(kBad.begin(), kBad.end(), mark) != kBad.end();
}

}  // namespace kiln
