// A timeline in the format that Perfetto (ui.perfetto.dev) and chrome://tracing open: {"traceEvents": [...]}.
// Spans of one lane must be nested or disjoint; those that overlap go to a lane of their own behind
// it, since Perfetto would move them there without a name.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"

namespace kiln {

class ChromeTrace {
 public:
  explicit ChromeTrace(std::string process, int rank = 0);

  // In the order in which they are to be shown; the number names the lane from then on.
  int add_lane(const std::string& name);
  // Of spans that cover the same time the first added is the outer one.
  std::size_t add_span(int lane, std::string name, std::string category, double begin_us, double us,
                       Json arguments = Json::object());
  void end_span(std::size_t span, double end_us);  // for one whose end was not known
  void add_counter(std::string name, double at_us, double value);

  // One event a line, times in microseconds from the first one on.
  std::string str() const;

 private:
  struct Span {
    int lane;
    std::string name, category;
    double begin_us, us;
    Json arguments;
  };
  struct Point {
    std::string name;
    double at_us, value;
  };

  std::string process_;
  int rank_;
  std::vector<std::string> lanes_;
  std::vector<Span> spans_;
  std::vector<Point> points_;
};

}  // namespace kiln
