#include "report/export/chrome_trace.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace kiln {
namespace {

constexpr int kOverflowLanes = 16;  // behind each lane; numbers of lanes are multiples of it
constexpr std::size_t kPiece = std::size_t{1} << 20;

int64_t nanoseconds(double us) { return std::llround(us * 1e3); }

void append(std::string& text, int64_t n) {
  std::array<char, 24> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), n);
  text.append(digits.data(), end.ptr);
}

// Microseconds to a nanosecond, without an exponent: 12.5, 1000.
void append_us(std::string& text, int64_t ns) {
  append(text, ns / 1000);
  int64_t rest = ns % 1000;
  if (rest == 0) return;
  text += '.';
  for (int64_t place = 100; rest > 0; place /= 10) {
    text += static_cast<char>('0' + rest / place);
    rest %= place;
  }
}

// What all spans of one kind have in common, as text.
std::vector<std::string> heads_of(const Timeline& t) {
  std::vector<std::string> heads;
  heads.reserve(t.details().size());
  for (const Timeline::Detail& d : t.details())
    heads.push_back(cat(R"({"ph":"X","name":)", Json(d.name).dump(), ",\"cat\":", Json(d.category).dump(),
                        ",\"pid\":", t.rank(),
                        d.arguments.empty() ? "" : cat(",\"args\":", d.arguments.dump())));
  return heads;
}

class Writer {
 public:
  explicit Writer(const TextSink& sink) : sink_(sink) { text_.reserve(kPiece + 4096); }
  std::string& text() { return text_; }
  void pass_on(std::size_t at_least = kPiece) {
    if (text_.size() < at_least) return;
    sink_(text_);
    text_.clear();
  }

 private:
  const TextSink& sink_;
  std::string text_;
};

std::string meta_line(const Timeline& t, const char* what, int tid, const Json& arguments) {
  return Json({{"ph", "M"}, {"name", what}, {"pid", t.rank()}, {"tid", tid}, {"ts", 0}, {"args", arguments}})
      .dump();
}

// The number of each span's lane: of those that overlap without being nested, one behind.
std::vector<int> places_of(const Timeline& t, const std::vector<uint32_t>& order, int64_t zero) {
  std::vector<std::vector<int64_t>> open(t.lanes().size() * kOverflowLanes);  // ends, outermost first
  std::vector<int> places(order.size());
  for (std::size_t k = 0; k < order.size(); ++k) {
    const Timeline::Span& s = t.spans()[order[k]];
    const int64_t begin = nanoseconds(s.begin_us) - zero, end = begin + nanoseconds(std::max(0.0, s.us));
    int place = s.lane * kOverflowLanes;
    for (int behind = 0; behind < kOverflowLanes; ++behind) {
      place = s.lane * kOverflowLanes + behind;
      std::vector<int64_t>& ends = open[static_cast<std::size_t>(place)];
      while (!ends.empty() && ends.back() <= begin) ends.pop_back();
      if (!ends.empty() && end > ends.back() && behind + 1 < kOverflowLanes) continue;
      ends.push_back(end);
      break;
    }
    places[k] = place;
  }
  return places;
}

void write_lanes(const Timeline& t, const std::vector<int>& places, Writer& out) {
  std::vector<int> behind(t.lanes().size(), 0);
  for (const int place : places) {
    int& most = behind[static_cast<std::size_t>(place / kOverflowLanes)];
    most = std::max(most, place % kOverflowLanes);
  }
  for (std::size_t lane = 0; lane < t.lanes().size(); ++lane) {
    for (int b = 0; b <= behind[lane]; ++b) {
      const int tid = kOverflowLanes * (static_cast<int>(lane) + 1) + b;
      const std::string title = b == 0 ? t.lanes()[lane] : t.lanes()[lane] + " (beside)";
      out.text() += meta_line(t, "thread_name", tid, {{"name", title}}) + ",\n";
      out.text() += meta_line(t, "thread_sort_index", tid, {{"sort_index", tid}}) + ",\n";
    }
  }
}

}  // namespace

void write_chrome_trace(const Timeline& t, const TextSink& sink) {
  const int64_t zero = nanoseconds(t.zero_us() < 1e300 ? t.zero_us() : 0);
  const std::vector<uint32_t> order = t.in_order();
  const std::vector<int> places = places_of(t, order, zero);
  Writer out(sink);
  out.text() += "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
  write_lanes(t, places, out);
  const std::vector<std::string> heads = heads_of(t);
  for (std::size_t k = 0; k < order.size(); ++k) {
    const Timeline::Span& s = t.spans()[order[k]];
    std::string& text = out.text();
    text += heads[s.detail];
    text += ",\"ts\":";
    append_us(text, nanoseconds(s.begin_us) - zero);
    text += ",\"dur\":";
    append_us(text, nanoseconds(std::max(0.0, s.us)));
    text += ",\"tid\":";
    append(text, places[k] + kOverflowLanes);
    text += "},\n";
    out.pass_on();
  }
  for (const Timeline::Point& p : t.points()) {
    std::string& text = out.text();
    text += cat(R"({"ph":"C","name":)", Json(t.counters()[p.counter]).dump(), ",\"pid\":", t.rank(),
                ",\"tid\":0,\"ts\":");
    append_us(text, nanoseconds(p.at_us) - zero);
    text += cat(",\"args\":{\"bytes\":", Json(p.value).dump(), "}},\n");
    out.pass_on();
  }
  out.text() += meta_line(t, "process_name", 0, {{"name", t.title()}}) + "\n]}\n";
  out.pass_on(0);
}

std::string chrome_trace(const Timeline& timeline) {
  std::string all;
  write_chrome_trace(timeline, [&all](std::string_view piece) { all += piece; });
  return all;
}

}  // namespace kiln
