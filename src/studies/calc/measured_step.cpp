#include "studies/calc/measured_step.h"

#include <fmt/format.h>

#include "studies/format.h"

namespace kiln {
namespace {

bool is_of(const Json& row, const StepTheoryRequest& q) {
  if (text_at(row, "command") != "bench step" || !counts(row) || q.ranks != 1 || !q.variants.empty())
    return false;
  const auto same = [&](const char* key, auto value, double otherwise) {
    return number_at(row, key).value_or(otherwise) == static_cast<double>(value);
  };
  const std::string recompute = text_at(row, "recompute");
  const bool on_gpu = text_at(row, "device").starts_with("cuda");
  return text_at(row, "size") == q.model.name && text_at(row, "dtype") == name_of(q.precision) &&
         same("batch", q.batch, 0) && same("ctx", q.context, 0) && same("micro_steps", q.micro_steps, 1) &&
         text_at(row, "mode") == name_of(q.mode) && text_at(row, "preset") == q.preset &&
         (recompute.empty() ? "none" : recompute) == name_of(q.recompute) &&
         text_at(row, "variants").empty() && on_gpu == (q.hardware.kind == DeviceType::cuda);
}

std::string device_of(const Json& row) {
  const std::string name = row.contains("host") ? text_at(row.at("host"), "device_name") : std::string();
  return name.empty() ? text_at(row, "device") : name;
}

}  // namespace

void add_measured_step(StudyPage& page, const StepTheoryRequest& q, StoredRows stored) {
  const Json* found = nullptr;
  for (const Json& row : stored)
    if (is_of(row, q) && number_at(row, "p50_ms")) found = &row;
  page.json.update({{"measured_ms", Json()}, {"measured_peak_bytes", Json()}, {"measured_on", Json()}});
  if (found == nullptr) return;
  const double p50 = *number_at(*found, "p50_ms");
  std::string note =
      fmt::format("Measured (a stored row of bench step, {}): {} ms", device_of(*found), digits(p50));
  page.json["measured_ms"] = p50;
  page.json["measured_on"] = device_of(*found);
  if (const auto peak = number_at(*found, "peak_bytes")) {
    note += fmt::format(", peak {} MiB", fine_mib(*peak));
    page.json["measured_peak_bytes"] = *peak;
  }
  page.notes.push_back(note + ".");
}

}  // namespace kiln
