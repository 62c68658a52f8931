#include "rows/row_status.h"

#include <array>

#include "rows/row_values.h"

namespace kiln {
namespace {

constexpr std::array<std::string_view, 9> kStatusNames = {
    "ok", "failed", "oom", "unsupported", "unavailable", "timeout", "interrupted", "skipped", "modelled"};
constexpr std::array<std::string_view, 3> kGateNames = {"not-verified", "passed", "failed"};

// What "gate" said of rows without a "status".
struct FormerGate {
  std::string_view word;
  RowStatus status;
  Gate gate;
};
constexpr FormerGate kFormerGates[] = {
    {"passed", RowStatus::ok, Gate::passed},
    {"failed", RowStatus::failed, Gate::failed},
    {"no memory", RowStatus::oom, Gate::not_verified},
    {"timed out", RowStatus::timeout, Gate::not_verified},
    {"not available", RowStatus::unavailable, Gate::not_verified},
    {"skipped", RowStatus::skipped, Gate::not_verified},
    {"not run", RowStatus::skipped, Gate::not_verified},
    {"planned", RowStatus::modelled, Gate::not_verified},
    {"predicted", RowStatus::modelled, Gate::not_verified},
    {"no effect", RowStatus::skipped, Gate::not_verified},
};

// What "status" said of the cells of sweeps and the parts of studies.
struct FormerStatus {
  std::string_view word;
  RowStatus status;
};
constexpr FormerStatus kFormerStatuses[] = {{"done", RowStatus::ok},
                                            {"no memory", RowStatus::oom},
                                            {"timed out", RowStatus::timeout},
                                            {"not available", RowStatus::unavailable},
                                            {"not run", RowStatus::skipped}};

// These said "passed" without comparing anything.
bool passed_without_a_check(const Json& row) {
  const std::string command = text_at(row, "command");
  return command == "bench step" || command == "bench warmup" || command == "profile";
}

const FormerGate* former_gate(const Json& row) {
  if (row.contains("status")) return nullptr;
  const std::string word = text_at(row, "gate");
  for (const FormerGate& f : kFormerGates)
    if (f.word == word) return &f;
  return nullptr;
}

}  // namespace

std::string_view name_of(RowStatus status) { return kStatusNames[static_cast<std::size_t>(status)]; }
std::string_view name_of(Gate gate) { return kGateNames[static_cast<std::size_t>(gate)]; }

RowStatus status_of(const Json& row) {
  if (const FormerGate* former = former_gate(row)) return former->status;
  const std::string name = text_at(row, "status");
  for (std::size_t i = 0; i < kStatusNames.size(); ++i)
    if (kStatusNames[i] == name) return static_cast<RowStatus>(i);
  for (const FormerStatus& f : kFormerStatuses)
    if (f.word == name) return f.status;
  return RowStatus::ok;
}

Gate gate_of(const Json& row) {
  if (const FormerGate* former = former_gate(row))
    return former->gate == Gate::passed && passed_without_a_check(row) ? Gate::not_verified : former->gate;
  const std::string name = text_at(row, "gate");
  for (std::size_t i = 0; i < kGateNames.size(); ++i)
    if (kGateNames[i] == name) return static_cast<Gate>(i);
  return Gate::not_verified;
}

}  // namespace kiln
