#include "kiln/profile_pages.h"

#include <fmt/format.h>

namespace kiln::cli {
namespace {

constexpr std::size_t kWidth = 110;

// Sentences broken at spaces.
std::string wrapped(const std::string& text) {
  std::string out;
  std::size_t column = 0, from = 0;
  while (from < text.size()) {
    std::size_t to = text.find(' ', from);
    if (to == std::string::npos) to = text.size();
    const std::size_t length = to - from;
    if (column > 0 && column + 1 + length > kWidth) {
      out += '\n';
      column = 0;
    } else if (column > 0) {
      out += ' ';
      ++column;
    }
    out += text.substr(from, length);
    column += length;
    from = to + 1;
  }
  return out + "\n";
}

std::string place(const ProfileReport& r) {
  return place_line(r.device, r.device_name, r.threads, r.isa, r.copy, r.flops);
}

std::string title(const StepProfile& p) {
  const StepOptions& step = p.spec.step;
  return fmt::format("{}, batch {}, ctx {}, {}, {}{}{}{}", p.size.name, step.batch, step.context,
                     name_of(p.spec.precision), p.preset, p.variants.empty() ? "" : "," + p.variants,
                     step.micro_steps > 1 ? fmt::format(", {} micro-steps", step.micro_steps) : "",
                     p.captured ? ", replayed as graphs" : "");
}

std::string why_not(const StepProfile& p) {
  return fmt::format("{}{}", p.status == StepProfile::Status::no_memory ? "no memory: " : "", p.reason);
}

}  // namespace

std::string profile_text(const ProfileReport& report) {
  std::string text = wrapped(place(report));
  for (const StepProfile& p : report.steps) {
    text += fmt::format("\n=== {}\n", title(p));
    if (!p.traced()) {
      text += wrapped(why_not(p));
      continue;
    }
    for (const ProfileSection& s : profile_sections(report, p)) {
      text += fmt::format("\n{}\n", s.heading);
      if (!s.table.empty()) text += aligned(s.table, s.left);
      for (const std::string& line : s.lines) text += wrapped(line);
    }
  }
  return text;
}

std::string profile_markdown(const ProfileReport& report) {
  std::string text = fmt::format("{}.\n", place(report));
  for (const StepProfile& p : report.steps) {
    text += fmt::format("\n## {}\n", title(p));
    if (!p.traced()) {
      text += fmt::format("\n{}.\n", why_not(p));
      continue;
    }
    for (const ProfileSection& s : profile_sections(report, p)) {
      text += fmt::format("\n### {}\n\n", s.heading);
      if (!s.table.empty()) text += markdown_table(s.table, s.left) + "\n";
      for (const std::string& line : s.lines) text += line + "\n";
    }
  }
  return text;
}

}  // namespace kiln::cli
