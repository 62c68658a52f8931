#include "perf/model/calibration.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace kiln {
namespace {

constexpr int64_t kMostRanks = 1 << 20;
constexpr std::size_t kNumbersOfCall = 5;

double positive(const JsonValue& v) {
  const double x = v.number();
  if (!(x > 0) || !std::isfinite(x)) v.fail("is not above 0");
  return x;
}

double not_negative(const JsonValue& v) {
  const double x = v.number();
  if (!(x >= 0) || !std::isfinite(x)) v.fail("is below 0");
  return x;
}

double optional_number(const JsonValue& v, std::string_view key) {
  return v.has(key) ? not_negative(v.at(key)) : 0;
}

CallCurve read_curve(const JsonValue& v) {
  v.check_keys(std::array<std::string_view, 6>{"op", "variant", "pass", "compute", "dtype", "calls"});
  CallCurve c;
  c.key = {v.at("op").string(), v.at("variant").string(), v.at("pass").string(), v.at("compute").string(),
           v.at("dtype").string()};
  const JsonValue calls = v.at("calls");
  if (calls.array().empty()) calls.fail("is empty");
  for (std::size_t i = 0; i < calls.array().size(); ++i) {
    const JsonValue call = calls.at(i);
    if (call.array().size() != kNumbersOfCall) call.fail("is not [flops, bytes, rows, columns, seconds]");
    c.calls.push_back(
        {{not_negative(call.at(0)), not_negative(call.at(1)), positive(call.at(2)), positive(call.at(3))},
         positive(call.at(4))});
    const CallShape& shape = c.calls.back().shape;
    if (shape.flops + shape.bytes <= 0) call.fail("has neither operations nor bytes");
  }
  return c;
}

CalibratedLink read_link(const JsonValue& v) {
  v.check_keys(std::array<std::string_view, 4>{"transport", "ranks", "latency_s", "bytes_per_s"});
  return {v.at("transport").string(), static_cast<int>(v.at("ranks").integer(2, kMostRanks)),
          not_negative(v.at("latency_s")), positive(v.at("bytes_per_s"))};
}

}  // namespace

CurveKey key_of(const TimedOp& op, DType compute) {
  return {std::string(op.op), std::string(op.variant), op.pass == Pass::forward ? "forward" : "backward",
          std::string(name_of(compute)), std::string(name_of(op.dtype))};
}

CallShape shape_of(const TimedOp& op) {
  // An update writes nothing that its event names: one row of one element.
  return {op.cost.flops, op.cost.bytes, std::max(1.0, static_cast<double>(op.rows)),
          std::max(1.0, static_cast<double>(op.columns))};
}

std::size_t Calibration::calls() const {
  std::size_t sum = 0;
  for (const CallCurve& c : curves) sum += c.calls.size();
  return sum;
}

Calibration read_calibration(const JsonValue& v) {
  v.check_keys(std::array<std::string_view, 11>{"date", "build", "isa", "threads", "clock_hz", "dispatch_s",
                                                "graph_gap_s", "step_s", "spread", "curves", "links"});
  Calibration c;
  c.date = v.at("date").string();
  c.build = v.at("build").string();
  if (v.has("isa")) c.isa = v.at("isa").string();
  if (v.has("threads")) c.threads = static_cast<int>(v.at("threads").integer(1, kMostRanks));
  c.clock_hz = optional_number(v, "clock_hz");
  c.dispatch = optional_number(v, "dispatch_s");
  c.graph_gap = optional_number(v, "graph_gap_s");
  c.step = optional_number(v, "step_s");
  c.spread = optional_number(v, "spread");
  const JsonValue curves = v.at("curves");
  for (std::size_t i = 0; i < curves.array().size(); ++i) c.curves.push_back(read_curve(curves.at(i)));
  if (c.curves.empty()) curves.fail("is empty");
  if (v.has("links")) {
    const JsonValue links = v.at("links");
    for (std::size_t i = 0; i < links.array().size(); ++i) c.links.push_back(read_link(links.at(i)));
  }
  return c;
}

Json calibration_json(const Calibration& c) {
  Json curves = Json::array();
  for (const CallCurve& curve : c.curves) {
    Json calls = Json::array();
    for (const CalibratedCall& call : curve.calls)
      calls.push_back(std::vector<double>{call.shape.flops, call.shape.bytes, call.shape.rows,
                                          call.shape.columns, call.seconds});
    curves.push_back({{"op", curve.key.op},
                      {"variant", curve.key.variant},
                      {"pass", curve.key.pass},
                      {"compute", curve.key.compute},
                      {"dtype", curve.key.dtype},
                      {"calls", calls}});
  }
  Json links = Json::array();
  for (const CalibratedLink& l : c.links)
    links.push_back({{"transport", l.transport},
                     {"ranks", l.ranks},
                     {"latency_s", l.latency},
                     {"bytes_per_s", l.bytes_per_s}});
  Json json = {{"date", c.date}, {"build", c.build}};
  if (!c.isa.empty()) json["isa"] = c.isa;
  if (c.threads > 0) json["threads"] = c.threads;
  if (c.clock_hz > 0) json["clock_hz"] = c.clock_hz;
  json.update({{"dispatch_s", c.dispatch},
               {"graph_gap_s", c.graph_gap},
               {"step_s", c.step},
               {"spread", c.spread},
               {"curves", curves},
               {"links", links}});
  return json;
}

}  // namespace kiln
