#include "perf/comm/gather_ledger.h"

#include <algorithm>
#include <deque>

namespace kiln {

std::string layer_of(std::string_view weight) {
  constexpr std::string_view kLayers = "layers.";
  const std::size_t at = weight.find(kLayers);
  if (at == std::string_view::npos) return std::string(weight);
  const std::size_t end = weight.find('.', at + kLayers.size());
  return std::string(weight.substr(at, end == std::string_view::npos ? end : end - at));
}

std::vector<LayerGathers> by_layer(std::span<const GatherUse> uses) {
  std::vector<LayerGathers> rows;
  for (const GatherUse& u : uses) {
    const std::string layer = layer_of(u.weight);
    auto row = std::find_if(rows.begin(), rows.end(),
                            [&](const LayerGathers& r) { return r.layer == layer && r.phase == u.phase; });
    if (row == rows.end()) row = rows.insert(rows.end(), {layer, u.phase});
    ++row->gathers;
    row->bytes += u.bytes;
    row->exposed += u.exposed();
    if (!u.in_time()) continue;
    row->slack = row->in_time == 0 ? u.slack() : std::min(row->slack, u.slack());
    ++row->in_time;
  }
  return rows;
}

std::vector<GatherWindowTime> windows_of(std::span<const GatherUse> uses, double end) {
  std::vector<GatherWindowTime> windows;
  for (std::size_t i = 0; i < uses.size(); ++i) {
    const GatherUse& u = uses[i];
    const double next = i + 1 < uses.size() ? uses[i + 1].wanted : end;
    windows.push_back({u.weight, u.phase, u.bytes, std::max(0.0, next - std::max(u.wanted, u.ready)), 0});
  }
  return windows;
}

GatherReplay replay_gathers(std::span<const GatherWindowTime> windows, int prefetch, int ranks,
                            const CallSeconds& seconds) {
  GatherReplay r;
  const std::size_t n = windows.size(), slots = static_cast<std::size_t>(prefetch) + 1;
  double here = 0, link_free = 0;
  const auto call = [&](std::string_view what, int64_t brought, double at) {
    const double us = 1e6 * seconds(what, brought);
    link_free = std::max(link_free, at) + us;
    r.communication += us;
    return link_free;
  };
  const auto wait_until = [&](double t) {
    r.exposed += std::max(0.0, t - here);
    here = std::max(here, t);
  };
  std::size_t started = 0;
  const auto start = [&](std::size_t i, bool ahead) {
    GatherUse u;
    u.weight = windows[i].weight;
    u.phase = windows[i].phase;
    u.bytes = windows[i].bytes;
    u.ahead = ahead;
    u.queued = here;
    u.ready = call("all_gather", windows[i].bytes / ranks, here);
    r.uses.push_back(std::move(u));
    ++started;
  };
  std::deque<double> sums;  // ends of those in flight
  if (prefetch > 0) {
    while (started < std::min(n, slots)) start(started, true);
  }
  for (std::size_t i = 0; i < n; ++i) {
    if (started == i) start(i, false);
    r.uses[i].wanted = here;
    wait_until(r.uses[i].ready);
    here += windows[i].compute;
    if (windows[i].scatter_bytes > 0) {
      sums.push_back(call("reduce_scatter", windows[i].scatter_bytes, here));
      for (; sums.size() > static_cast<std::size_t>(prefetch); sums.pop_front()) wait_until(sums.front());
    }
    if (prefetch > 0 && started < n) start(started, true);  // into the slot that is free now
  }
  for (const double end : sums) wait_until(end);
  r.end = here;
  return r;
}

}  // namespace kiln
