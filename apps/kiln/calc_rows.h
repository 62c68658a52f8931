// Which stored rows a calculator compares itself with.
#pragma once

#include "kiln/calc.h"

namespace kiln::cli {

// The device asked for; else that of the newest row of `command` on the transport; else cpu.
inline std::string device_of_rows(StoredRows stored, const CalcPlace& place, std::string_view command) {
  if (!place.device.empty()) return place.device;
  std::string device = "cpu";
  for (const nlohmann::json& r : stored) {
    if (r.value("command", "") == command && r.value("transport", "") == place.transport)
      device = r.value("device", device);
  }
  return device;
}

}  // namespace kiln::cli
