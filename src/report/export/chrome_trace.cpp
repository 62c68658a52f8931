#include "report/export/chrome_trace.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/json.h"

namespace kiln {
namespace {

constexpr int kOverflowLanes = 16;  // behind each lane; numbers of lanes are multiples of it

double rounded(double us) { return std::round(us * 1e3) / 1e3; }  // to a nanosecond

std::string line(const Json& event) { return event.dump(); }

}  // namespace

ChromeTrace::ChromeTrace(std::string process, int rank) : process_(std::move(process)), rank_(rank) {}

int ChromeTrace::add_lane(const std::string& name) {
  lanes_.push_back(name);
  return static_cast<int>(lanes_.size()) - 1;
}

std::size_t ChromeTrace::add_span(int lane, std::string name, std::string category, double begin_us,
                                  double us, Json arguments) {
  spans_.push_back({lane, std::move(name), std::move(category), begin_us, us, std::move(arguments)});
  return spans_.size() - 1;
}

void ChromeTrace::end_span(std::size_t span, double end_us) {
  spans_[span].us = end_us - spans_[span].begin_us;
}

void ChromeTrace::add_counter(std::string name, double at_us, double value) {
  points_.push_back({std::move(name), at_us, value});
}

std::string ChromeTrace::str() const {
  double zero = std::numeric_limits<double>::max();
  for (const Span& s : spans_) zero = std::min(zero, s.begin_us);
  for (const Point& p : points_) zero = std::min(zero, p.at_us);

  // By their beginning, the longer first: then a span is inside the one it begins in, or overlaps it.
  std::vector<std::size_t> order(spans_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return spans_[a].begin_us != spans_[b].begin_us ? spans_[a].begin_us < spans_[b].begin_us
                                                    : spans_[a].us > spans_[b].us;
  });
  std::map<int, std::vector<double>> open;  // ends of the spans that are open in a lane, outermost first
  std::string text = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
  std::string events;
  std::map<int, int> used;  // lanes behind the first, of each
  for (std::size_t i : order) {
    const Span& s = spans_[i];
    const double begin = rounded(s.begin_us - zero), end = rounded(s.begin_us - zero + std::max(0.0, s.us));
    int behind = 0, tid = 0;
    for (; behind < kOverflowLanes; ++behind) {
      tid = kOverflowLanes * (s.lane + 1) + behind;
      std::vector<double>& ends = open[tid];
      while (!ends.empty() && ends.back() <= begin) ends.pop_back();
      if (ends.empty() || end <= ends.back() || behind + 1 == kOverflowLanes) {
        ends.push_back(end);
        break;
      }
    }
    used[s.lane] = std::max(used[s.lane], behind);
    Json event = {
        {"ph", "X"},    {"name", s.name}, {"cat", s.category}, {"ts", begin}, {"dur", rounded(end - begin)},
        {"pid", rank_}, {"tid", tid}};
    if (!s.arguments.empty()) event["args"] = s.arguments;
    events += line(event) + ",\n";
  }
  for (const Point& p : points_) {
    events += line({{"ph", "C"},
                    {"name", p.name},
                    {"ts", rounded(p.at_us - zero)},
                    {"pid", rank_},
                    {"tid", 0},
                    {"args", {{"bytes", p.value}}}}) +
              ",\n";
  }
  auto name = [&](const char* what, int tid, const Json& arguments) {
    return line({{"ph", "M"}, {"name", what}, {"pid", rank_}, {"tid", tid}, {"ts", 0}, {"args", arguments}});
  };
  for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
    for (int behind = 0; behind <= used[static_cast<int>(lane)]; ++behind) {
      const int tid = kOverflowLanes * (static_cast<int>(lane) + 1) + behind;
      const std::string title = behind == 0 ? lanes_[lane] : lanes_[lane] + " (beside)";
      text += name("thread_name", tid, {{"name", title}}) + ",\n";
      text += name("thread_sort_index", tid, {{"sort_index", tid}}) + ",\n";
    }
  }
  text += events;
  return text + name("process_name", 0, {{"name", process_}}) + "\n]}\n";
}

}  // namespace kiln
