#include "dist/comm/link_model.h"

#include <charconv>
#include <cmath>
#include <span>

#include "base/error.h"

namespace kiln {
namespace {

constexpr const char* kExample = "for example latency=20us,bandwidth=10GB/s";

struct Unit {
  std::string_view name;
  double value;
};
constexpr Unit kTimes[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};
constexpr Unit kRates[] = {{"B/s", 1},     {"KB/s", 1e3},       {"MB/s", 1e6},      {"GB/s", 1e9},
                           {"TB/s", 1e12}, {"Mbit/s", 1e6 / 8}, {"Gbit/s", 1e9 / 8}};

[[noreturn]] void refuse(std::string_view what, const std::string& why) {
  throw Error(cat(what, ": ", why), kExample, ErrorKind::usage);
}

double parse_quantity(std::string_view what, std::string_view key, std::string_view text,
                      std::span<const Unit> units) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || !std::isfinite(number))
    refuse(what, cat(key, " is '", text, "', not a number with a unit"));
  if (number < 0) refuse(what, cat(key, " is '", text, "'; expected 0 or more"));
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  std::string known;
  for (const Unit& u : units) {
    if (u.name == unit) return number * u.value;
    known += cat(known.empty() ? "" : ", ", u.name);
  }
  refuse(what, cat(key, " is '", text, "', ", unit.empty() ? "which lacks a unit" : "whose unit is unknown",
                   " (", known, ")"));
}

std::string shortest(double value, std::span<const Unit> units) {
  const Unit* best = &units[0];
  for (const Unit& u : units) {
    if (value >= u.value && u.value >= best->value) best = &u;
  }
  return cat(value / best->value, best->name);
}

}  // namespace

std::string_view name_of(CommAlgorithm a) {
  switch (a) {
    case CommAlgorithm::direct:
      return "direct";
    case CommAlgorithm::ring:
      return "ring";
    case CommAlgorithm::alternate:
      return "alternate";
  }
  return "?";
}

CommAlgorithm parse_comm_algorithm(std::string_view text, std::string_view what) {
  for (CommAlgorithm a : {CommAlgorithm::direct, CommAlgorithm::ring, CommAlgorithm::alternate}) {
    if (name_of(a) == text) return a;
  }
  throw Error(cat(what, " is '", text, "'"), "direct, ring or alternate", ErrorKind::usage);
}

LinkModel LinkModel::parse(std::string_view text, std::string_view what) {
  LinkModel link;
  bool has_latency = false, has_bandwidth = false;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    const std::string_view part = text.substr(at, comma - at);
    at = comma + 1;
    const std::size_t equals = part.find('=');
    if (equals == std::string_view::npos) refuse(what, cat("'", part, "' is not key=value"));
    const std::string_view key = part.substr(0, equals), value = part.substr(equals + 1);
    const bool is_latency = key == "latency";
    if (!is_latency && key != "bandwidth") refuse(what, cat("'", key, "' is neither latency nor bandwidth"));
    bool& has = is_latency ? has_latency : has_bandwidth;
    if (has) refuse(what, cat(key, " appears twice"));
    has = true;
    if (is_latency) {
      link.latency = parse_quantity(what, key, value, kTimes);
    } else {
      link.bandwidth = parse_quantity(what, key, value, kRates);
    }
  }
  if (!has_latency) refuse(what, "latency is missing");
  if (!has_bandwidth) refuse(what, "bandwidth is missing");
  if (link.bandwidth == 0) refuse(what, "a link of no bandwidth carries nothing");
  return link;
}

std::string LinkModel::str() const {
  return cat("latency=", shortest(latency, kTimes),
             ",bandwidth=", shortest(bandwidth, std::span(kRates).first(5)));
}

}  // namespace kiln
