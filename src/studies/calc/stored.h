// The stored rows a calculator compares with.
#pragma once

#include "base/json.h"
#include "rows/row_status.h"
#include "rows/row_values.h"
#include "studies/calc/calc.h"

namespace kiln {

// A row of a command that passed its gate, of so many ranks on the transport: where it has other types than
// such rows have, it is none of them.
inline bool is_row_of(const Json& row, const char* command, const std::string& transport, int ranks) {
  return text_at(row, "command") == command && counts(row) && text_at(row, "transport") == transport &&
         number_at(row, "ranks") == ranks;
}

// The device requested; else that of the newest row that fits; else cpu.
template <class Fits>
std::string device_of_rows(StoredRows stored, const CalcPlace& place, Fits fits) {
  if (!place.device.empty()) return place.device;
  std::string device = "cpu";
  for (const Json& row : stored) {
    if (fits(row) && !text_at(row, "device").empty()) device = text_at(row, "device");
  }
  return device;
}

}  // namespace kiln
