// A document apart from its format: sections of paragraphs, lists, tables, charts and command lines. Written
// as Markdown with its charts beside it, or as one HTML file that needs nothing else. Texts are data: each
// format escapes them in its own way.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "report/charts/svg_parts.h"
#include "report/tables/text_table.h"

namespace kiln {

// A picture that was made elsewhere is shown, never trusted: in HTML it is an image and not part of the page.
struct DocumentChart {
  NamedChart chart;
  std::string alt;
  bool foreign = false;
};

struct DocumentBlock {
  enum class Kind { paragraph, bullets, table, chart, command };
  Kind kind = Kind::paragraph;
  std::vector<std::string> lines = {};  // sentences; of bullets one each; of a command its lines
  TextTable table = {};
  std::size_t left = 1;                     // leading columns of words
  std::vector<std::string> row_marks = {};  // of a table: what each line below the heading is, for its colour
  DocumentChart chart = {};
};

struct DocumentSection {
  int level = 2;
  std::string anchor, title;
  std::string mark = {};  // "missing", "stale", ...: behind the title, coloured; empty: nothing to say
  std::vector<DocumentBlock> blocks = {};

  void say(std::vector<std::string> sentences);  // nothing where there are none
  void list(std::vector<std::string> items);
  void tabulate(TextTable table, std::size_t left, std::vector<std::string> row_marks = {});
  void draw(DocumentChart chart);
  void command(std::string line);
};

struct Document {
  std::string title;
  std::vector<DocumentSection> sections;
};

// `charts`: the folder they are in, seen from the page.
std::string document_markdown(const Document& document, std::string_view charts);

// Charts of the document, in its order.
std::vector<NamedChart> charts_of(const Document& document);

// Marks that say that something is wrong, and so are red.
bool is_bad_mark(std::string_view mark);

}  // namespace kiln
