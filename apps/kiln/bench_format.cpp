#include "kiln/bench_format.h"

#include <fmt/format.h>

#include <algorithm>
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

std::string aligned(const TextTable& table, std::size_t left) {
  std::vector<std::size_t> width(table.front().size());
  for (const auto& line : table) {
    for (std::size_t i = 0; i < line.size(); ++i) width[i] = std::max(width[i], line[i].size());
  }
  std::string text;
  for (const auto& line : table) {
    std::string row;
    for (std::size_t i = 0; i < line.size(); ++i) {
      if (i > 0) row += "  ";
      row += i < left ? fmt::format("{:<{}}", line[i], width[i]) : fmt::format("{:>{}}", line[i], width[i]);
    }
    row.resize(row.find_last_not_of(' ') + 1);
    text += row + "\n";
  }
  return text;
}

std::string markdown_table(const TextTable& table, std::size_t left) {
  std::string text;
  for (std::size_t i = 0; i < table.size(); ++i) {
    text += fmt::format("| {} |\n", fmt::join(table[i], " | "));
    if (i > 0) continue;
    text += "|";
    for (std::size_t c = 0; c < table[i].size(); ++c) text += c < left ? "---|" : "---:|";
    text += "\n";
  }
  return text;
}

std::string place_line(const std::string& device, const std::string& device_name, int threads,
                       const std::string& isa, double copy, const std::vector<NamedRate>& flops) {
  std::string text = device == "cpu" ? fmt::format("cpu ({}), {} thread{}, {}", device_name, threads,
                                                   threads == 1 ? "" : "s", isa)
                                     : fmt::format("{} ({})", device, device_name);
  text += fmt::format("; ceilings measured here: copy {} GB/s read+write", digits(copy / 1e9));
  for (const NamedRate& f : flops)
    text += fmt::format(", {} {} TFLOP/s", f.name, digits(f.per_second / 1e12));
  return text;
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
