// Spans in lanes, and counters, on one clock: what a trace for Perfetto (chrome_trace.h) and the viewer page
// (report/html/timeline_html.h) are written from. Made for a million spans: what a span is called and what is
// said of it is kept once for all that are alike.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/json.h"

namespace kiln {

class Timeline {
 public:
  struct Detail {
    std::string name, category;
    Json arguments;  // an object
  };
  struct Span {
    int lane = 0;
    uint32_t detail = 0;
    double begin_us = 0, us = 0;
  };
  struct Point {
    uint32_t counter = 0;
    double at_us = 0, value = 0;
  };

  explicit Timeline(std::string title, int rank = 0) : title_(std::move(title)), rank_(rank) {}

  // In the order in which they are to be shown; the number names the lane from then on.
  int add_lane(std::string name);
  // The number of what spans are; the same for the same. "range", "step" and "phase" are categories of spans
  // that hold others.
  uint32_t detail(std::string name, std::string category, Json arguments = Json::object());
  // Of spans that cover the same time the first added is the outer one.
  std::size_t add_span(int lane, uint32_t detail, double begin_us, double us);
  std::size_t add_span(int lane, std::string name, std::string category, double begin_us, double us,
                       Json arguments = Json::object());
  void end_span(std::size_t span, double end_us);  // for one whose end was not known
  void add_counter(const std::string& name, double at_us, double value);

  const std::string& title() const { return title_; }
  int rank() const { return rank_; }
  const std::vector<std::string>& lanes() const { return lanes_; }
  const std::vector<Detail>& details() const { return details_; }
  const std::vector<Span>& spans() const { return spans_; }
  const std::vector<std::string>& counters() const { return counters_; }
  const std::vector<Point>& points() const { return points_; }

  double zero_us() const;  // of all spans and points the first
  // Numbers of spans, by their beginning, the longer first: each is inside the one it begins in, or overlaps.
  std::vector<uint32_t> in_order() const;

 private:
  std::string title_;
  int rank_;
  std::vector<std::string> lanes_, counters_;
  std::vector<Detail> details_;
  std::unordered_map<std::string, uint32_t> numbers_;  // of details, by all their text
  std::vector<Span> spans_;
  std::vector<Point> points_;
};

}  // namespace kiln
