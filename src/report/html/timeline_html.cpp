#include "report/html/timeline_html.h"

#include <algorithm>
#include <cmath>

#include "base/atomic_file.h"
#include "base/json.h"
#include "report/export/chrome_trace.h"
#include "report/html/base64_sink.h"
#include "report/html/embedded_json.h"
#include "report/html/timeline_data_script.h"
#include "report/html/timeline_page.h"
#include "report/html/timeline_view_script.h"

namespace kiln {
namespace {

uint64_t nanoseconds(double us) { return static_cast<uint64_t>(std::max(0.0, std::round(us * 1e3))); }

// A number that may be negative: 0, -1, 1, -2, ...
uint64_t zigzag(int64_t n) { return static_cast<uint64_t>(n) << 1 ^ static_cast<uint64_t>(n >> 63); }

// Lanes with nothing in them say nothing.
std::vector<std::vector<uint32_t>> spans_by_lane(const Timeline& t) {
  std::vector<std::vector<uint32_t>> lanes(t.lanes().size());
  for (const uint32_t i : t.in_order()) lanes[static_cast<std::size_t>(t.spans()[i].lane)].push_back(i);
  return lanes;
}

Json head_of(const Timeline& t, const std::vector<std::vector<uint32_t>>& by_lane,
             const std::vector<std::size_t>& points) {
  Json lanes = Json::array(), details = Json::array(), counters = Json::array();
  for (std::size_t i = 0; i < by_lane.size(); ++i) lanes.push_back({t.lanes()[i], by_lane[i].size()});
  for (const Timeline::Detail& d : t.details()) details.push_back({d.name, d.category, d.arguments});
  for (std::size_t i = 0; i < points.size(); ++i) counters.push_back({t.counters()[i], points[i]});
  return {{"title", t.title()}, {"rank", t.rank()},   {"spans", t.spans().size()},
          {"lanes", lanes},     {"details", details}, {"counters", counters}};
}

// Of each lane its spans: how long after the one before it begins, how long it takes, in ns, and what it is.
// Then of each counter its points: how long after the one before, and what it changes by.
void write_numbers(const Timeline& t, const std::vector<std::vector<uint32_t>>& by_lane,
                   const std::vector<std::vector<const Timeline::Point*>>& points, Base64Sink& out) {
  const double zero = t.zero_us();
  for (const std::vector<uint32_t>& lane : by_lane) {
    uint64_t before = 0;
    for (const uint32_t i : lane) {
      const Timeline::Span& s = t.spans()[i];
      const uint64_t begin = std::max(before, nanoseconds(s.begin_us - zero));
      out.varint(begin - before);
      out.varint(nanoseconds(s.us));
      out.varint(s.detail);
      before = begin;
    }
  }
  for (const auto& list : points) {
    uint64_t before = 0;
    int64_t value = 0;
    for (const Timeline::Point* p : list) {
      const uint64_t at = std::max(before, nanoseconds(p->at_us - zero));
      const auto now = static_cast<int64_t>(std::llround(p->value));
      out.varint(at - before);
      out.varint(zigzag(now - value));
      before = at;
      value = now;
    }
  }
}

}  // namespace

void write_timeline_html(const Timeline& t, const TextSink& sink) {
  const std::vector<std::vector<uint32_t>> by_lane = spans_by_lane(t);
  std::vector<std::vector<const Timeline::Point*>> points(t.counters().size());
  for (const Timeline::Point& p : t.points()) points[p.counter].push_back(&p);
  std::vector<std::size_t> counts;
  for (auto& list : points) {
    std::stable_sort(list.begin(), list.end(),
                     [](const auto* a, const auto* b) { return a->at_us < b->at_us; });
    counts.push_back(list.size());
  }
  sink(kTimelinePageTop);
  sink("<script id=\"head\" type=\"application/json\">");
  sink(embedded_json(head_of(t, by_lane, counts)));
  sink("</script>\n<script id=\"numbers\" type=\"text/plain\">");
  Base64Sink numbers(sink);
  write_numbers(t, by_lane, points, numbers);
  numbers.finish();
  sink("</script>\n<script>\n");
  sink(kTimelineData);
  sink(kTimelineView);
  sink("</script></body></html>\n");
}

std::string write_timeline_files(const Timeline& timeline, const std::string& trace_path) {
  const auto write = [&](const std::string& path, auto writer) {
    AtomicFile file(path);
    writer(timeline, [&file](std::string_view piece) { file.append(piece); });
    file.commit();
  };
  constexpr std::string_view kEnd = ".trace.json";
  std::string page = trace_path;
  if (page.ends_with(kEnd)) page.resize(page.size() - kEnd.size());
  page += ".html";
  write(trace_path, write_chrome_trace);
  write(page, write_timeline_html);
  return page;
}

}  // namespace kiln
