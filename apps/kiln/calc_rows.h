// Which stored rows a calculator compares itself with.
#pragma once

#include "studies/calc/calc.h"
#include "report/result_table.h"

namespace kiln::cli {

// A row of a command that passed its gate, of so many ranks on the transport: where it has other types than
// such rows have, it is none of them.
inline bool is_row_of(const nlohmann::json& row, const char* command, const std::string& transport,
                      int ranks) {
  return word_at(row, "command") == command && word_at(row, "gate") == "passed" &&
         word_at(row, "transport") == transport && number_at(row, "ranks") == ranks;
}

// The device asked for; else that of the newest row that fits; else cpu.
template <class Fits>
std::string device_of_rows(StoredRows stored, const CalcPlace& place, Fits fits) {
  if (!place.device.empty()) return place.device;
  std::string device = "cpu";
  for (const nlohmann::json& row : stored) {
    if (fits(row) && !word_at(row, "device").empty()) device = word_at(row, "device");
  }
  return device;
}

}  // namespace kiln::cli
