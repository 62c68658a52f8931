#include "compile/max_flow.h"

#include <algorithm>
#include <cstddef>

namespace kiln::compile {

void MaxFlow::edge(int from, int to, double capacity) {
  edges_of_[static_cast<std::size_t>(from)].push_back(static_cast<int>(edges_.size()));
  edges_.push_back({to, capacity});
  edges_of_[static_cast<std::size_t>(to)].push_back(static_cast<int>(edges_.size()));
  edges_.push_back({from, 0});
}

bool MaxFlow::find_levels(int source, int sink) {
  level_.assign(edges_of_.size(), -1);
  std::vector<int> queue = {source};
  level_[static_cast<std::size_t>(source)] = 0;
  for (std::size_t at = 0; at < queue.size(); ++at) {
    const auto node = static_cast<std::size_t>(queue[at]);
    for (const int e : edges_of_[node]) {
      const Edge& edge = edges_[static_cast<std::size_t>(e)];
      int& level = level_[static_cast<std::size_t>(edge.to)];
      if (edge.left <= 0 || level >= 0) continue;
      level = level_[node] + 1;
      queue.push_back(edge.to);
    }
  }
  return level_[static_cast<std::size_t>(sink)] >= 0;
}

double MaxFlow::push(int node, int sink, double most) {
  if (node == sink) return most;
  const auto n = static_cast<std::size_t>(node);
  for (std::size_t& i = next_[n]; i < edges_of_[n].size(); ++i) {
    const auto e = static_cast<std::size_t>(edges_of_[n][i]);
    const int to = edges_[e].to;
    if (edges_[e].left <= 0 || level_[static_cast<std::size_t>(to)] != level_[n] + 1) continue;
    const double pushed = push(to, sink, std::min(most, edges_[e].left));
    if (pushed <= 0) continue;
    edges_[e].left -= pushed;
    edges_[e ^ 1].left += pushed;
    return pushed;
  }
  return 0;
}

double MaxFlow::run(int source, int sink) {
  double total = 0;
  while (find_levels(source, sink)) {
    next_.assign(edges_of_.size(), 0);
    for (double pushed = push(source, sink, kNever); pushed > 0; pushed = push(source, sink, kNever)) {
      total += pushed;
      if (pushed == kNever) return kNever;  // no cut separates them
    }
  }
  return total;
}

}  // namespace kiln::compile
