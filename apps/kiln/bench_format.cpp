#include "kiln/bench_format.h"

#include <fmt/format.h>

#include <cmath>

#include "base/build_info.h"
#include "report/result_log.h"

namespace kiln::cli {

using nlohmann::ordered_json;

std::string digits(double x) {
  return x >= 100 ? fmt::format("{:.0f}", x) : x >= 10 ? fmt::format("{:.1f}", x) : fmt::format("{:.3g}", x);
}

std::string dump(const ordered_json& page, int indent) {
  return page.dump(indent, ' ', false, ordered_json::error_handler_t::replace);
}

std::string result_line(const std::string& command, const ordered_json& row, const Timing& timing,
                        const ordered_json& host) {
  ordered_json line = {{"command", command}};
  line.update(row);
  ordered_json samples = ordered_json::array();
  for (double s : timing.samples) samples.push_back(std::round(ms(s) * 1e6) / 1e6);
  line["raw_samples"] = samples;
  line["build_id"] = build_info().build_id;
  line["host"] = host;
  line["time"] = utc_now();
  return dump(line, -1);
}

}  // namespace kiln::cli
