#include "perf/memory/memory_analysis.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <tuple>
#include <unordered_map>

#include "base/error.h"
#include "ops/op_list.h"

namespace kiln {
namespace {

using Kind = AllocEvent::Kind;

// Follows the bytes in use through the events.
class Running {
 public:
  explicit Running(MemoryAnalysis& a) : a_(a) {}

  void segment(const MemoryEvent& e) {
    reserved_ += e.kind == Kind::segment_alloc ? e.bytes : std::size_t{0} - e.bytes;
    a_.peak_reserved = std::max(a_.peak_reserved, reserved_);
  }
  void begin(const MemoryEvent& e, std::size_t at) {
    open_[e.address] = a_.lives.size();
    a_.lives.push_back({e, at, SIZE_MAX});
    tags_[e.tag] += e.bytes;
    total_ += e.bytes;
    a_.own_peak[e.tag] = std::max(a_.own_peak[e.tag], tags_[e.tag]);
  }
  void end(const MemoryEvent& e, std::size_t at) {
    const auto it = open_.find(e.address);
    if (it == open_.end()) return;  // it began before the trace did
    MemoryLife& life = a_.lives[it->second];
    life.end = at;
    tags_[life.origin.tag] -= life.origin.bytes;
    total_ -= life.origin.bytes;
    open_.erase(it);
  }
  void note(Phase phase, std::size_t at) {
    a_.in_use.push_back(total_);
    keep(a_.peak, at);
    auto& own = phases_[static_cast<std::size_t>(phase)];
    if (!own.second) own = {MemoryPeak{at, total_, tags_}, true};
    keep(own.first, at);
  }
  void finish(std::size_t events) {
    for (MemoryLife& life : a_.lives) life.end = std::min(life.end, events);
    for (int p = 0; p < kPhaseCount; ++p) {
      const auto& own = phases_[static_cast<std::size_t>(p)];
      if (own.second) a_.phases.push_back({static_cast<Phase>(p), own.first});
    }
  }

 private:
  void keep(MemoryPeak& peak, std::size_t at) const {
    if (total_ > peak.bytes) peak = {at, total_, tags_};
  }

  MemoryAnalysis& a_;
  std::unordered_map<uint64_t, std::size_t> open_;
  PerTag<std::size_t> tags_{};
  std::size_t total_ = 0, reserved_ = 0;
  std::array<std::pair<MemoryPeak, bool>, kPhaseCount> phases_{};
};

}  // namespace

MemoryAnalysis analyse(const MemoryRecord& record) {
  MemoryAnalysis a;
  a.in_use.reserve(record.events.size());
  Running running(a);
  for (const MemoryEvent& e : record.before) {
    if (e.kind == Kind::alloc) running.begin(e, 0);
    if (e.kind == Kind::segment_alloc) running.segment(e);
  }
  for (std::size_t i = 0; i < record.events.size(); ++i) {
    const MemoryEvent& e = record.events[i];
    if (e.kind == Kind::alloc) running.begin(e, i);
    if (e.kind == Kind::free) running.end(e, i);
    if (e.kind == Kind::segment_alloc || e.kind == Kind::segment_free) running.segment(e);
    running.note(e.phase, i);
  }
  running.finish(record.events.size());
  return a;
}

std::string op_key(const MemoryRecord& /*record*/, const MemoryEvent& e) {
  return *e.op == '\0' ? cat(name_of(e.phase), " (no op)")
                       : cat(name_of(e.phase), " ", e.op, " (", e.variant, ")");
}

std::string line_key(const MemoryRecord& /*record*/, const MemoryEvent& e) {
  return cat(short_file(e.file), ":", e.line);
}

std::string layer_key(const MemoryRecord& record, const MemoryEvent& e) {
  const std::string_view scope = record.scope_of(e);
  if (scope.empty()) return "(none)";
  const auto first = scope.find('.');
  const auto second = first == std::string_view::npos ? first : scope.find('.', first + 1);
  return std::string(scope.substr(0, scope.starts_with("layers.") ? second : first));
}

std::vector<MemoryGroup> group_by(const MemoryRecord& record, const MemoryAnalysis& a, const MemoryKey& key) {
  std::map<std::string, MemoryGroup> groups;
  for (const MemoryLife& life : a.lives) {
    std::string name = key(record, life.origin);
    MemoryGroup& g = groups[name];
    g.name = std::move(name);
    ++g.count;
    g.allocated += life.origin.bytes;
    g.largest = std::max(g.largest, life.origin.bytes);
    if (life.live_at(a.peak.event)) g.at_peak += life.origin.bytes;
  }
  std::vector<MemoryGroup> sorted;
  sorted.reserve(groups.size());
  for (auto& [name, g] : groups) sorted.push_back(std::move(g));
  std::stable_sort(sorted.begin(), sorted.end(), [](const MemoryGroup& x, const MemoryGroup& y) {
    return std::tie(x.at_peak, x.allocated) > std::tie(y.at_peak, y.allocated);
  });
  return sorted;
}

std::vector<LargeAllocation> largest_allocations(const MemoryRecord& record, const MemoryAnalysis& a,
                                                 double percent) {
  if (a.lives.empty()) return {};
  std::vector<const MemoryLife*> sorted;
  sorted.reserve(a.lives.size());
  for (const MemoryLife& life : a.lives) sorted.push_back(&life);
  std::stable_sort(sorted.begin(), sorted.end(), [](const MemoryLife* x, const MemoryLife* y) {
    return x->origin.bytes > y->origin.bytes;
  });
  const auto wanted = static_cast<std::size_t>(std::ceil(percent / 100 * static_cast<double>(sorted.size())));
  sorted.resize(std::clamp<std::size_t>(wanted, 1, sorted.size()));
  std::vector<LargeAllocation> out;
  std::map<std::tuple<std::size_t, std::string, std::string, Tag>, std::size_t> places;
  for (const MemoryLife* life : sorted) {
    const MemoryEvent& e = life->origin;
    const auto [it, fresh] =
        places.try_emplace({e.bytes, op_key(record, e), line_key(record, e), e.tag}, out.size());
    if (fresh) out.push_back({e, {}, e.bytes});
    LargeAllocation& entry = out[it->second];
    ++entry.count;
    const std::string layer = layer_key(record, e);
    if (std::find(entry.layers.begin(), entry.layers.end(), layer) == entry.layers.end())
      entry.layers.push_back(layer);
    entry.live_at_peak += life->live_at(a.peak.event) ? 1 : 0;
  }
  return out;
}

std::size_t scores_at_peak(const MemoryAnalysis& a, std::size_t requested) {
  std::size_t bytes = 0;
  for (const MemoryLife& life : a.lives) {
    if (is_attention(kind_of_op(life.origin.op)) && life.origin.requested == requested &&
        life.live_at(a.peak.event))
      bytes += life.origin.bytes;
  }
  return bytes;
}

PowerFit fit_power(const std::vector<double>& x, const std::vector<double>& y) {
  const std::size_t n = x.size();
  if (n < 2 || y.size() != n) throw Error(cat("a power is fitted to two points or more, not ", n));
  double mx = 0, my = 0, sxx = 0, sxy = 0, syy = 0;
  for (std::size_t i = 0; i < n; ++i) {
    mx += std::log(x[i]) / static_cast<double>(n);
    my += std::log(y[i]) / static_cast<double>(n);
  }
  for (std::size_t i = 0; i < n; ++i) {
    const double dx = std::log(x[i]) - mx, dy = std::log(y[i]) - my;
    sxx += dx * dx;
    sxy += dx * dy;
    syy += dy * dy;
  }
  PowerFit fit;
  fit.exponent = sxy / sxx;
  fit.last = std::log(y[n - 1] / y[n - 2]) / std::log(x[n - 1] / x[n - 2]);
  fit.r2 = syy == 0 ? 1 : sxy * sxy / (sxx * syy);
  return fit;
}

}  // namespace kiln
