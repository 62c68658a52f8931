#include "report/html/memory_html.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/json.h"
#include "report/charts/memory_svg.h"
#include "report/html/base64_sink.h"
#include "report/html/embedded_json.h"
#include "report/html/memory_html_page.h"

namespace kiln {
void write_memory_html(const MemoryRecord& record, const MemoryAnalysis& a, const std::string& title,
                       const TextSink& sink) {
  // Origins repeat from step to step and from layer to layer: each is named once.
  std::map<std::tuple<std::string, std::string, std::string, int, int>, uint32_t> numbers;
  Json origins = Json::array();
  std::vector<uint32_t> origin_of;
  for (const MemoryLife& life : a.lives) {
    const MemoryEvent& e = life.origin;
    const auto [it, fresh] = numbers.try_emplace(
        {cat(e.op, *e.op == '\0' ? "" : cat(" (", e.variant, ")")), std::string(record.scope_of(e)),
         line_key(record, e), static_cast<int>(e.phase), static_cast<int>(e.tag)},
        static_cast<uint32_t>(numbers.size()));
    if (fresh) {
      const auto& [op, scope, line, phase, tag] = it->first;
      origins.push_back({op, scope, line, phase, tag});
    }
    origin_of.push_back(it->second);
  }
  Json phases = Json::array(), tags = Json::array(), marks = Json::array();
  for (int p = 0; p < kPhaseCount; ++p)
    phases.push_back({name_of(static_cast<Phase>(p)), colour_of(static_cast<Phase>(p))});
  for (int t = 0; t < kTagCount; ++t)
    tags.push_back({name_of(static_cast<Tag>(t)), colour_of(static_cast<Tag>(t))});
  for (const MemoryMark& m : record.marks) marks.push_back({m.event, m.name});
  Json runs = Json::array();  // of events in one phase: where it begins, and which
  for (std::size_t i = 0; i < record.events.size(); ++i) {
    if (i == 0 || record.events[i].phase != record.events[i - 1].phase)
      runs.push_back({i, static_cast<int>(record.events[i].phase)});
  }
  const Json head = {
      {"title", title},
      {"device", record.device},
      {"events", record.events.size()},
      {"dropped", record.dropped},
      {"before", std::count_if(record.before.begin(), record.before.end(),
                               [](const MemoryEvent& e) { return e.kind == AllocEvent::Kind::alloc; })},
      {"peak", {a.peak.event, a.peak.bytes}},
      {"tags", tags},
      {"phases", phases},
      {"runs", runs},
      {"marks", marks},
      {"origins", origins}};
  sink(kMemoryPageTop);
  sink("<script id=\"head\" type=\"application/json\">");
  sink(embedded_json(head));
  sink("</script>\n<script id=\"lives\" type=\"text/plain\">");
  Base64Sink words(sink);
  for (std::size_t i = 0; i < a.lives.size(); ++i) {
    const MemoryLife& life = a.lives[i];
    words.word(static_cast<uint32_t>(life.begin));
    words.word(static_cast<uint32_t>(life.end));
    words.word(static_cast<uint32_t>(round_up(life.origin.bytes, 512) / 512));
    words.word(origin_of[i]);
  }
  words.finish();
  sink("</script>\n");
  sink(kMemoryPageBottom);
}

}  // namespace kiln
