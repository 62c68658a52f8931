#include "report/text/escape.h"

#include <algorithm>
#include <cctype>

#include "data/utf8.h"

namespace kiln {
namespace {

bool is_control(char32_t c) { return c < 0x20 || (c >= 0x7f && c < 0xa0); }
bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }

std::string shown(std::string_view text, std::string_view kept) {
  constexpr std::string_view kNoCharacter = "\xef\xbf\xbd";
  std::string out;
  while (!text.empty()) {
    const Utf8Char c = utf8_front(text);
    if (c.length == 0) {
      out += kNoCharacter;
      text.remove_prefix(1);
      continue;
    }
    const bool blank = is_control(c.code) && kept.find(text.front()) == std::string_view::npos;
    out += blank ? std::string_view(" ") : text.substr(0, c.length);
    text.remove_prefix(c.length);
  }
  return out;
}

// Does Markdown give the character at `at` a meaning there? An underscore inside a word has none, and names
// are full of them; a colon and a dot only make a link of what follows.
bool has_meaning(std::string_view text, std::size_t at) {
  const char c = text[at];
  const std::string_view before = text.substr(0, at), after = text.substr(at + 1);
  switch (c) {
    case '\\':
    case '`':
    case '|':
    case '<':
    case '[':
    case ']':
    case '*':
    case '~':
    case '$':
      return true;
    case '_':
      return before.empty() || after.empty() || !is_word(before.back()) || !is_word(after.front());
    case '&':
      return !after.empty() && (after.front() == '#' || is_word(after.front()));
    case ':':
      return after.starts_with("//");
    case '.':
      return before.ends_with("www") || before.ends_with("WWW");
    default:
      return false;
  }
}

// A heading, a list, a quotation or a rule, where a line begins with it.
bool begins_a_block(std::string_view text) {
  constexpr std::string_view kStarts = "#+-=>";
  if (text.empty() || kStarts.find(text.front()) == std::string_view::npos) return false;
  return text.front() == '>' || text.size() == 1 || text[1] == ' ' || text[1] == text[0];
}

std::string escaped(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (has_meaning(text, i)) out += '\\';
    out += text[i];
  }
  return out;
}

// Where the run of exactly one backtick at or after `from` is; npos where there is none. As CommonMark pairs
// them.
std::size_t single_backtick(std::string_view text, std::size_t from) {
  while ((from = text.find('`', from)) != std::string_view::npos) {
    const std::size_t end = std::min(text.find_first_not_of('`', from), text.size());
    if (end - from == 1) return from;
    from = end;
  }
  return from;
}

}  // namespace

std::string shown_text(std::string_view text) { return shown(text, ""); }
std::string shown_lines(std::string_view text) { return shown(text, "\n\t"); }

std::string markdown_escaped(std::string_view text) { return escaped(shown_text(text)); }

std::string markdown_sentence(std::string_view raw) {
  const std::string line = shown_text(raw);
  std::string_view text = line;
  std::string out = begins_a_block(text) ? "\\" : "";
  while (!text.empty()) {
    const std::size_t open = single_backtick(text, 0);
    const std::size_t close = open == std::string_view::npos ? open : single_backtick(text, open + 1);
    if (close == std::string_view::npos) return out + escaped(text);
    out += escaped(text.substr(0, open));
    out += text.substr(open, close + 1 - open);
    text.remove_prefix(close + 1);
  }
  return out;
}

std::string markdown_fence(std::string_view text) {
  std::size_t longest = 2;
  for (std::size_t at = text.find('`'); at != std::string_view::npos; at = text.find('`', at)) {
    const std::size_t end = std::min(text.find_first_not_of('`', at), text.size());
    longest = std::max(longest, end - at);
    at = end;
  }
  const std::string fence(longest + 1, '`');
  const std::string body = shown_lines(text);
  return fence + "\n" + body + (body.empty() || body.ends_with('\n') ? "" : "\n") + fence + "\n";
}

std::string latex_escaped(std::string_view text) {
  std::string out;
  for (const char c : shown_text(text)) {
    switch (c) {
      case '&':
      case '%':
      case '$':
      case '#':
      case '_':
      case '{':
      case '}':
        out += '\\';
        out += c;
        break;
      case '\\':
        out += "\\textbackslash{}";
        break;
      case '~':
        out += "\\textasciitilde{}";
        break;
      case '^':
        out += "\\textasciicircum{}";
        break;
      case '<':
        out += "\\textless{}";
        break;
      case '>':
        out += "\\textgreater{}";
        break;
      case '|':
        out += "\\textbar{}";
        break;
      case '[':  // after the \\ of the line before it would be that command's argument
        out += "{[}";
        break;
      default:
        out += c;
    }
  }
  return out;
}

namespace {

// "-1.5e3", "-12 %", "+0.3x" and a lone "-" are figures; "-1+cmd|..." is none.
bool is_formula(std::string_view text) {
  if (text.empty()) return false;
  constexpr std::string_view kStarts = "=@\t\r";
  if (kStarts.find(text.front()) != std::string_view::npos) return true;
  if (text.front() != '+' && text.front() != '-') return false;
  return text.find_first_not_of("0123456789.eE% x+-", 1) != std::string_view::npos;
}

}  // namespace

std::string csv_cell(std::string_view text) {
  std::string cell(is_formula(text) ? "'" : "");
  cell += text;
  if (cell.find_first_of(",\"\r\n") == std::string::npos) return cell;
  std::string out = "\"";
  for (const char c : cell) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

std::string xml_escaped(std::string_view text) {
  std::string out;
  for (const char c : shown_text(text)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace kiln
