#include "studies/ranks/columns.h"

#include <fmt/format.h>

#include <algorithm>

namespace kiln {

Json ranks_json(const RanksStudy& q, int64_t batch, int ranks) {
  Json json = {{"size", q.size.name},
               {"device", q.device.str()},
               {"dtype", name_of(q.precision)},
               {"batch", batch},
               {"ctx", q.context},
               {"ranks", ranks},
               {"transport", q.transport},
               {"link", q.link ? "modelled" : "none"}};
  if (q.micro_steps > 1) json["micro_steps"] = q.micro_steps;
  if (q.link) json["link_model"] = q.link->str();
  return json;
}

std::span<const ColumnForm> ranks_forms() {
  static constexpr ColumnForm kForms[] = {
      {"size", ""},       {"device", ""},
      {"dtype", ""},      {"batch", ""},
      {"ctx", ""},        {"ranks", "ranks", Unit::text, Where::differs},
      {"transport", ""},  {"link", ""},
      {"link_model", ""}, {"micro_steps", "grad accum", Unit::count, Where::differs},
  };
  return kForms;
}

PageTable table_of(std::string heading, std::span<const ColumnForm> columns, std::span<const Json> rows,
                   std::initializer_list<std::string_view> keys) {
  std::vector<ColumnForm> shown;
  if (keys.size() == 0) shown.assign(columns.begin(), columns.end());
  for (const std::string_view key : keys) {
    const auto found = std::find_if(columns.begin(), columns.end(), [&](const ColumnForm& c) {
      return (c.key.empty() ? c.title : c.key) == key;
    });
    if (found == columns.end()) continue;
    shown.push_back(*found);
    shown.back().where = Where::table;
  }
  RowTable table = row_table(shown, rows);
  return {std::move(heading), std::move(table.lines), table.left};
}

std::string link_text(const RanksStudy& q) {
  return q.link ? fmt::format("link=modelled ({})", q.link->str()) : "no link modelled";
}

}  // namespace kiln
