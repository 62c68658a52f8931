#include "studies/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/build_info.h"
#include "base/json.h"
#include "base/plain_number.h"
#include "perf/timing/statistics.h"
#include "rows/result_log.h"
#include "rows/row_status.h"
#include "rows/row_values.h"

namespace kiln {

std::string digits(double x) {
  return x >= 100 ? fmt::format("{:.0f}", x) : x >= 10 ? fmt::format("{:.1f}", x) : plain(x, 3);
}

std::string fine_mib(double bytes) { return fmt::format("{:.2f}", bytes / 0x1p20); }

std::string dump(const Json& page, int indent) { return page.dump(indent); }

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

Json timing_json(const Timing& t) {
  const std::optional<Interval> mean = interval_of_times(t.samples);
  return {{"warmups", t.warmups},
          {"samples", t.samples.size()},
          {"mean_ms", ms(t.mean)},
          {"std_ms", ms(t.std)},
          {"ci95_low_ms", mean ? Json(ms(mean->low)) : Json()},
          {"ci95_high_ms", mean ? Json(ms(mean->high)) : Json()},
          {"p20_ms", ms(t.p20)},
          {"p50_ms", ms(t.p50)},
          {"p80_ms", ms(t.p80)},
          {"p95_ms", ms(t.p95)},
          {"min_ms", ms(t.min)},
          {"variation", variation(t.samples)},
          {"verdict", t.stable() ? "stable" : "noisy"},
          {"noise", t.noise()}};
}

std::string own_build() { return build_info().build_id; }

Json load_json(const HostLoad& load) {
  Json json = {{"seconds", load.seconds},         {"cpus", load.cpus},
               {"load_before", load.load_before}, {"others_cores", load.others},
               {"steal_cores", load.steal},       {"throttled_cores", load.throttled}};
  if (load.gpu) {
    const GpuLoad& gpu = *load.gpu;
    json["gpu"] = {{"samples", gpu.samples},
                   {"sm_mhz_min", gpu.least_sm_mhz},
                   {"sm_mhz_median", gpu.median_sm_mhz},
                   {"sm_mhz_most", gpu.most_sm_mhz},
                   {"watts", gpu.watts},
                   {"watts_most", gpu.most_watts},
                   {"celsius", gpu.celsius},
                   {"held_back_share", gpu.unsteady},
                   {"power_capped_share", gpu.power_capped},
                   {"other_processes", gpu.others}};
  }
  if (const std::string why = load.why_unreliable(); !why.empty()) json["unreliable"] = why;
  return json;
}

std::span<const ColumnForm> timing_forms() {
  static constexpr ColumnForm kForms[] = {
      {"warmups", "", Unit::count},
      {"samples", "", Unit::count},
      {"mean_ms", "mean", Unit::milliseconds, Where::wide},
      {"std_ms", "std", Unit::milliseconds, Where::wide},
      {"ci95_low_ms", "95 % from", Unit::milliseconds, Where::wide},
      {"ci95_high_ms", "to", Unit::milliseconds, Where::wide},
      {"p20_ms", "", Unit::milliseconds},
      {"p50_ms", "ms p50", Unit::milliseconds, Where::table},
      {"p80_ms", "", Unit::milliseconds},
      {"p95_ms", "", Unit::milliseconds},
      {"min_ms", "", Unit::milliseconds},
      {"variation", "+-", Unit::percent, Where::table},
      {"verdict", "", Unit::text},
      {"noise", "", Unit::text},
  };
  return kForms;
}

Json speedup_json(const std::optional<double>& speedup, const std::optional<Comparison>& versus) {
  Json json = {{"speedup_over_naive", speedup ? Json(*speedup) : Json()}};
  if (versus)
    json.update({{"speedup_p", versus->p},
                 {"speedup_verdict", name_of(versus->significance)},
                 {"speedup_significant", versus->significant()}});
  return json;
}

namespace {

// As str() of the comparison has it: with what forbids relying on the ratio.
std::string over_naive(const Json& row) {
  using S = Comparison::Significance;
  const auto ratio = number_at(row, "speedup_over_naive");
  if (!ratio) return {};
  const std::string found = text_at(row, "speedup_verdict");
  for (const S s : {S::faster, S::slower, S::same, S::too_few})
    if (name_of(s) == found) return str(Comparison{s, *ratio, number_at(row, "speedup_p").value_or(1)});
  return times(*ratio);
}

}  // namespace

std::span<const ColumnForm> speedup_forms() {
  static constexpr ColumnForm kForms[] = {
      {"speedup_over_naive", "vs naive", Unit::times, Where::table, "", over_naive},
      {"speedup_p", "", Unit::number},
      {"speedup_verdict", "", Unit::text},
      {"speedup_significant", "", Unit::text},
  };
  return kForms;
}

Json tags_json(const PerTag<std::size_t>& tags) {
  Json j = Json::object();
  for (int i = 0; i < kTagCount; ++i) {
    const Tag t = static_cast<Tag>(i);
    if (tags[t] != 0) j[std::string(kiln::name_of(t))] = tags[t];
  }
  return j;
}

std::string result_line(const std::string& command, const Json& row, const Timing& timing, const Json& host) {
  Json line = {{"schema", kRowSchema}, {"command", command}, {"ranks", 1}, {"link", "none"}};
  line.update(row);
  if (!timing.samples.empty()) line.update(timing_json(timing));
  Json samples = Json::array();
  for (double s : timing.samples) samples.push_back(std::round(ms(s) * 1e6) / 1e6);
  line["raw_samples"] = samples;
  line["build_id"] = build_info().build_id;
  line["host"] = host;
  line["time"] = utc_now();
  return dump(line, -1);
}

std::string document_line(const Json& page) {
  Json row = {{"status", "ok"}, {"gate", "not-verified"}};
  row.update(page);
  return result_line(page.at("command").text(), row, {}, Json::object());
}

}  // namespace kiln
