// Text that rows bring along (names of devices, error messages, paths) is data: whatever it holds, a page
// shows it and obeys none of it. One function for each language that pages are written in.
#pragma once

#include <string>
#include <string_view>

namespace kiln {

// Control characters are blanks, bytes that are no UTF-8 are U+FFFD: what no page could show. One line.
std::string shown_text(std::string_view text);
// The same, but for line ends and tabs.
std::string shown_lines(std::string_view text);

// Inside a Markdown table or sentence, as CommonMark and GitHub read it: no HTML, link, emphasis, code or
// column.
std::string markdown_escaped(std::string_view text);
// A sentence of ours that may quote others' words. `Code` in single backticks stays what it is; the rest is
// escaped.
std::string markdown_sentence(std::string_view text);
// A code block around text that may hold fences itself, with its line end.
std::string markdown_fence(std::string_view text);

std::string latex_escaped(std::string_view text);

// As RFC 4180 has it: quoted where it holds a comma, a quote or a line break. What a spreadsheet would take
// for a formula begins with an apostrophe; signed numbers are left as they are.
std::string csv_cell(std::string_view text);

// In SVG and HTML, between tags and in quoted attributes.
std::string xml_escaped(std::string_view text);

}  // namespace kiln
