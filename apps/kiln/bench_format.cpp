#include "studies/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/build_info.h"
#include "perf/timing/statistics.h"
#include "rows/result_log.h"

namespace kiln::cli {

using nlohmann::ordered_json;

std::string digits(double x) {
  return x >= 100 ? fmt::format("{:.0f}", x) : x >= 10 ? fmt::format("{:.1f}", x) : fmt::format("{:.3g}", x);
}

std::string fine_mib(double bytes) { return fmt::format("{:.2f}", bytes / 0x1p20); }

std::string dump(const ordered_json& page, int indent) {
  return page.dump(indent, ' ', false, ordered_json::error_handler_t::replace);
}

std::string place_line(const std::string& device, const std::string& device_name, int threads,
                       const std::string& isa, double copy, const std::vector<NamedRate>& flops,
                       const std::string& when) {
  std::string text = device == "cpu" ? fmt::format("cpu ({}), {} thread{}, {}", device_name, threads,
                                                   threads == 1 ? "" : "s", isa)
                                     : fmt::format("{} ({})", device, device_name);
  text += fmt::format("; ceilings {}: copy {} GB/s read+write", when, digits(copy / 1e9));
  for (const NamedRate& f : flops)
    text += fmt::format(", {} {} TFLOP/s", f.name, digits(f.per_second / 1e12));
  return text;
}

ordered_json timing_json(const Timing& t) {
  const Interval mean = confidence_95(t.samples);
  return {{"warmups", t.warmups},
          {"samples", t.samples.size()},
          {"mean_ms", ms(t.mean)},
          {"std_ms", ms(t.std)},
          {"ci95_low_ms", ms(mean.low)},
          {"ci95_high_ms", ms(mean.high)},
          {"p20_ms", ms(t.p20)},
          {"p50_ms", ms(t.p50)},
          {"p80_ms", ms(t.p80)},
          {"p95_ms", ms(t.p95)},
          {"min_ms", ms(t.min)},
          {"variation", variation(t.samples)},
          {"verdict", t.stable() ? "stable" : "noisy"},
          {"noise", t.noise()}};
}

ordered_json tags_json(const PerTag<std::size_t>& tags) {
  ordered_json j = ordered_json::object();
  for (int i = 0; i < kTagCount; ++i) {
    const Tag t = static_cast<Tag>(i);
    if (tags[t] != 0) j[std::string(kiln::name_of(t))] = tags[t];
  }
  return j;
}

std::string result_line(const std::string& command, const ordered_json& row, const Timing& timing,
                        const ordered_json& host) {
  ordered_json line = {{"command", command}, {"ranks", 1}, {"link", "none"}};
  line.update(row);
  if (!timing.samples.empty()) line.update(timing_json(timing));
  ordered_json samples = ordered_json::array();
  for (double s : timing.samples) samples.push_back(std::round(ms(s) * 1e6) / 1e6);
  line["raw_samples"] = samples;
  line["build_id"] = build_info().build_id;
  line["host"] = host;
  line["time"] = utc_now();
  return dump(line, -1);
}

}  // namespace kiln::cli
