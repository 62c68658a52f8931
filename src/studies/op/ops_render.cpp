#include "studies/op/ops_render.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "ops/select.h"

namespace kiln {
namespace {

// Appends `text` to a line that is `column` wide already, broken between words, later lines indented alike.
void append_wrapped(std::string& page, std::string_view text, std::size_t column) {
  std::size_t at = column;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    if (at > column && at + 1 + word.size() > kTerminalColumns) {
      page += '\n' + std::string(column, ' ');
      at = column;
    }
    if (at > column) {
      page += ' ';
      ++at;
    }
    page += word;
    at += word.size();
  }
  page += '\n';
}

// What a Markdown table would take for its own.
std::string cell(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    if (c == '|' || c == '*' || c == '_' || c == '<' || c == '[') safe += '\\';
    safe += c;
  }
  return safe;
}

std::string names_on(const OpListing& op, DeviceType device) {
  std::string names;
  for (const VariantListing& v : op.variants) {
    if (v.device == device) names += fmt::format("{}`{}`", names.empty() ? "" : ", ", v.name);
  }
  return names.empty() ? "–" : names;
}

}  // namespace

std::string ops_text(std::span<const OpListing> ops, const VariantChoice& chosen) {
  std::size_t op_width = 0, name_width = 0;
  for (const OpListing& op : ops) {
    op_width = std::max(op_width, op.name.size());
    for (const VariantListing& v : op.variants) name_width = std::max(name_width, v.name.size());
  }
  std::string page;
  for (const OpListing& op : ops) {
    page += fmt::format("{:<{}}  ", op.name, op_width);
    append_wrapped(page, op.summary, op_width + 2);
    const std::string_view wanted = chosen.find(op.name);
    bool taken = false;
    for (const VariantListing& v : op.variants) {
      const bool takes = !taken && v.available && (wanted.empty() || wanted == v.name);
      taken |= takes;
      const std::string row =
          fmt::format("  {} {:<{}}  {:<4}  ", takes ? '*' : ' ', v.name, name_width, name_of(v.device));
      page += row;
      append_wrapped(page, v.available ? "available" : v.reason, row.size());
    }
  }
  return page;
}

void check_chosen(std::span<const OpListing> ops, const VariantChoice& chosen) {
  for (const auto& [op, wanted] : chosen.all()) {
    bool runs = false;
    std::vector<std::string> names, reasons;
    for (const VariantListing& v : find_op(ops, op).variants) {
      names.push_back(v.name);
      if (v.name != wanted) continue;
      runs |= v.available;
      reasons.push_back(cat(v.name, " (", name_of(v.device), "): ", v.reason));
    }
    if (!runs) throw_no_variant(op, wanted, names, reasons);
  }
}

std::string ops_json(std::span<const OpListing> ops) {
  Json list = Json::array();
  for (const OpListing& op : ops) {
    Json variants = Json::array();
    for (const VariantListing& v : op.variants) {
      variants.push_back({{"name", v.name},
                          {"device", name_of(v.device)},
                          {"available", v.available},
                          {"reason", v.reason}});
    }
    list.push_back({{"name", op.name}, {"summary", op.summary}, {"variants", variants}});
  }
  return Json{{"command", "ops"}, {"ops", list}}.dump(2) + "\n";
}

std::string ops_markdown(std::span<const OpListing> ops) {
  std::string page =
      "# Ops and their variants\n\n"
      "Written by `kiln ops --markdown > docs/ops.md`. The first variant of a column that can run is taken,\n"
      "unless a call or `--variant` names another. `kiln ops` says what can run on your machine, and why "
      "the\n"
      "rest cannot.\n\n"
      "| op | what it computes | on the CPU | on CUDA |\n"
      "|---|---|---|---|\n";
  for (const OpListing& op : ops) {
    page += fmt::format("| `{}` | {} | {} | {} |\n", op.name, cell(op.summary), names_on(op, DeviceType::cpu),
                        names_on(op, DeviceType::cuda));
  }
  return page;
}

}  // namespace kiln
