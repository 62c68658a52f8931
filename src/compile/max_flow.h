// A smallest cut between two nodes of a small directed graph (Dinic's algorithm), with real capacities.
#pragma once

#include <limits>
#include <vector>

namespace kiln::compile {

class MaxFlow {
 public:
  static constexpr double kNever = std::numeric_limits<double>::infinity();  // an edge that is not cut

  explicit MaxFlow(int nodes) : edges_of_(static_cast<std::size_t>(nodes)) {}
  void edge(int from, int to, double capacity);
  // The capacity that a smallest cut takes away.
  double run(int source, int sink);
  // After run(): whether `node` is on the source's side of a smallest cut.
  bool with_source(int node) const { return level_[static_cast<std::size_t>(node)] >= 0; }

 private:
  struct Edge {
    int to;
    double left;
  };
  bool find_levels(int source, int sink);
  double push(int node, int sink, double most);

  std::vector<Edge> edges_;  // each is followed by its reverse
  std::vector<std::vector<int>> edges_of_;
  std::vector<int> level_;
  std::vector<std::size_t> next_;
};

}  // namespace kiln::compile
