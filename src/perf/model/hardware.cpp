#include "perf/model/hardware.h"

#include <fmt/format.h>

#include <array>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/nearest_name.h"
#include "base/options.h"
#include "perf/model/formula.h"

namespace kiln {
namespace {

constexpr int64_t kSchema = 1;
constexpr std::size_t kMostBytes = std::size_t{4} << 20;
constexpr std::array<std::string_view, 5> kDTypes = {"fp32", "tf32", "bf16", "fp16", "fp8"};

double above_zero(const JsonValue& v) {
  const double x = v.number();
  if (!(x > 0)) v.fail(fmt::format("is {}; expected a number above 0", formula_number(x)));
  return x;
}

MatmulRates read_rates(const JsonValue& v) {
  v.check_keys(kDTypes);
  MatmulRates rates;
  for (const std::string_view dtype : kDTypes)
    if (v.has(dtype)) rates.emplace_back(dtype, above_zero(v.at(dtype)));
  return rates;
}

DeviceType read_kind(const JsonValue& v, Hardware& h) {
  const std::string& kind = v.string();
  h.runs_kiln = kind != "other";
  if (kind == "cpu") return DeviceType::cpu;
  if (kind == "cuda" || kind == "other") return DeviceType::cuda;
  v.fail(fmt::format("is '{}'; expected cpu, cuda or other", kind));
}

HardwareLink read_link(const JsonValue& v) {
  v.check_keys(std::array<std::string_view, 3>{"name", "bytes_per_s", "latency_s"});
  HardwareLink link;
  link.name = v.at("name").string();
  link.bytes_per_s = above_zero(v.at("bytes_per_s"));
  if (v.has("latency_s")) link.latency = above_zero(v.at("latency_s"));
  return link;
}

void read_measured(const JsonValue& v, Hardware& h) {
  v.check_keys(std::array<std::string_view, 2>{"bytes_per_s", "flops"});
  if (v.has("bytes_per_s")) h.measured_bytes_per_s = above_zero(v.at("bytes_per_s"));
  if (v.has("flops")) h.measured_flops = read_rates(v.at("flops"));
}

Json rates_json(const MatmulRates& rates) {
  Json json = Json::object();
  for (const auto& [dtype, rate] : rates) json[dtype] = rate;
  return json;
}

Json link_json(const HardwareLink& link) {
  Json json = {{"name", link.name}, {"bytes_per_s", link.bytes_per_s}};
  if (link.latency > 0) json["latency_s"] = link.latency;
  return json;
}

// An object whose members are on lines of their own, and whose long member's elements are.
std::string by_lines(const Json& json, std::string_view long_member) {
  std::string text;
  for (const auto& [key, value] : json.items()) {
    text += text.empty() ? "{\n" : ",\n";
    text += Json(key).dump() + ": ";
    if (key != long_member) {
      text += value.dump();
      continue;
    }
    std::string_view before = "[\n  ";
    for (const Json& element : value.items_of_array()) {
      text.append(before).append(element.dump());
      before = ",\n  ";
    }
    text += "]";
  }
  return text + "}";
}

const double* rate_in(const MatmulRates& rates, std::string_view dtype) {
  for (const auto& [name, rate] : rates)
    if (name == dtype) return &rate;
  return nullptr;
}

const HardwareFile* built_in(std::string_view name) {
  for (const HardwareFile& file : hardware_files())
    if (file.name == name) return &file;
  return nullptr;
}

Hardware read_built_in(const HardwareFile& file) {
  return read_hardware(file.text, fmt::format("hardware/{}.json", file.name));
}

// The calibration of the device whose curves it takes, if that has one.
Hardware with_curves(Hardware h) {
  if (h.calibrated_on.empty()) return h;
  const HardwareFile* other = built_in(h.calibrated_on);
  if (other == nullptr)
    throw Error(fmt::format("hardware {}: curves_of is '{}'; expected one of {}", h.name, h.calibrated_on,
                            joined(hardware_names())));
  Hardware measured = read_built_in(*other);
  h.calibration = std::move(measured.calibration);
  h.curve_bytes_per_s = measured.copy_rate();
  for (const std::string_view dtype : kDTypes) {
    if (rate_in(measured.flops, dtype) != nullptr)
      h.curve_flops.emplace_back(dtype, measured.flops_of(dtype));
  }
  return h;
}

}  // namespace

double Hardware::flops_of(std::string_view dtype) const {
  if (const double* rate = rate_in(measured_flops, dtype)) return *rate;
  if (const double* rate = rate_in(flops, dtype)) return *rate;
  std::vector<std::string> known;
  for (const auto& [name_of_rate, rate] : flops) known.push_back(name_of_rate);
  throw Error(fmt::format("hardware {} has no matmul rate of {}; it has {}", name, dtype, joined(known)),
              "choose another --precision, or give --flops", ErrorKind::usage);
}

Hardware read_hardware(std::string_view text, const std::string& source) {
  const Json json = parse_json(text, {.max_bytes = kMostBytes, .comments = true}, source);
  const JsonValue v(json, source);
  v.check_keys(std::array<std::string_view, 16>{
      "schema", "name", "title", "device", "kind", "source", "from", "memory_bytes", "bytes_per_s", "flops",
      "measured", "cache_bytes", "processors", "link", "calibration", "curves_of"});
  v.at("schema").integer(kSchema, kSchema);
  Hardware h;
  h.name = v.at("name").string();
  h.title = v.at("title").string();
  h.from = v.at("from").string();
  if (v.has("device")) h.device = v.at("device").string();
  h.kind = read_kind(v.at("kind"), h);
  const std::string& where = v.at("source").string();
  if (where != "datasheet" && where != "measured")
    v.at("source").fail(fmt::format("is '{}'; expected datasheet or measured", where));
  h.measured = where == "measured";
  h.memory = above_zero(v.at("memory_bytes"));
  h.bytes_per_s = above_zero(v.at("bytes_per_s"));
  h.flops = read_rates(v.at("flops"));
  if (h.flops.empty()) v.at("flops").fail("has no rate; expected one of fp32, tf32, bf16, fp16, fp8");
  if (v.has("measured")) read_measured(v.at("measured"), h);
  if (v.has("cache_bytes")) h.cache = above_zero(v.at("cache_bytes"));
  if (v.has("processors")) h.processors = static_cast<int>(v.at("processors").integer(1, 1 << 20));
  if (v.has("link")) h.link = read_link(v.at("link"));
  if (v.has("calibration")) h.calibration = read_calibration(v.at("calibration"));
  if (v.has("curves_of")) {
    h.calibrated_on = v.at("curves_of").string();
    if (h.calibration) v.at("curves_of").fail("is given beside a calibration; expected one of both");
  }
  return h;
}

std::string hardware_text(const Hardware& h) {
  Json json = {{"schema", kSchema}, {"name", h.name}, {"title", h.title}};
  if (!h.device.empty()) json["device"] = h.device;
  json.update({{"kind", h.runs_kiln ? std::string(name_of(h.kind)) : "other"},
               {"source", h.measured ? "measured" : "datasheet"},
               {"from", h.from},
               {"memory_bytes", h.memory},
               {"bytes_per_s", h.bytes_per_s},
               {"flops", rates_json(h.flops)}});
  if (h.measured_bytes_per_s || !h.measured_flops.empty()) {
    Json& measured = json["measured"] = Json::object();
    if (h.measured_bytes_per_s) measured["bytes_per_s"] = *h.measured_bytes_per_s;
    if (!h.measured_flops.empty()) measured["flops"] = rates_json(h.measured_flops);
  }
  if (h.cache > 0) json["cache_bytes"] = h.cache;
  if (h.processors > 0) json["processors"] = h.processors;
  if (h.link) json["link"] = link_json(*h.link);
  if (!h.calibrated_on.empty()) json["curves_of"] = h.calibrated_on;
  std::string text = by_lines(json, "");
  if (h.calibrated_on.empty() && h.calibration) {
    text.pop_back();
    text += ",\n\"calibration\": " + by_lines(calibration_json(*h.calibration), "curves") + "}";
  }
  return text + "\n";
}

const std::vector<std::string>& hardware_names() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const HardwareFile& file : hardware_files()) names.emplace_back(file.name);
    return names;
  }();
  return kNames;
}

Hardware find_hardware(const std::string& name) {
  if (const HardwareFile* file = built_in(name)) return with_curves(read_built_in(*file));
  const bool path = name.find('/') != std::string::npos || name.ends_with(".json");
  if (path) return with_curves(read_hardware(read_small_file(name, kMostBytes, "a hardware file"), name));
  const std::vector<std::string_view> known(hardware_names().begin(), hardware_names().end());
  const std::string nearest = nearest_name(name, known);
  throw Error(fmt::format("--hw is '{}'; expected one of {}, or the path of a hardware file", name,
                          joined(hardware_names())),
              nearest.empty() ? "docs/prediction.md says what a hardware file has"
                              : fmt::format("did you mean '{}'?", nearest),
              ErrorKind::usage);
}

}  // namespace kiln
