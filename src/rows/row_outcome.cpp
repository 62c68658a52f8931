#include "rows/row_outcome.h"

namespace kiln {
namespace {

// Of a row with times. What has none says why in their place.
std::string gate_cell(const Json& row) {
  if (status_of(row) != RowStatus::ok) return {};
  const Gate gate = gate_of(row);
  return gate == Gate::not_verified ? "not verified" : std::string(name_of(gate));
}

}  // namespace

Json outcome_json(const RowOutcome& o) {
  Json json = {{"status", name_of(o.status)}, {"gate", name_of(o.gate)}};
  if (!o.reason.empty()) json["reason"] = o.reason;
  return json;
}

std::span<const ColumnForm> outcome_forms() {
  static constexpr ColumnForm kForms[] = {
      {"status", ""},
      {"gate", "gate", Unit::text, Where::table, "", gate_cell},
      {"reason", ""},
  };
  return kForms;
}

std::span<const ColumnForm> stored_outcome_forms() {
  static constexpr ColumnForm kForms[] = {{"status", ""}, {"gate", ""}, {"reason", ""}};
  return kForms;
}

}  // namespace kiln
