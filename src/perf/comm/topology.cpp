#include "perf/comm/topology.h"

#include <algorithm>

namespace kiln {

int Topology::group_in_node(int ranks, int stride) const {
  const int here = std::min(ranks, std::max(1, node / std::max(1, stride)));
  return ranks % here == 0 ? here : 1;  // an uneven group goes round on the links between nodes
}

CallSeconds Topology::seconds(int ranks, int stride) const {
  const int m = group_in_node(ranks, stride), k = ranks / m;
  if (k == 1) return seconds_on(inside, ranks);
  if (m == 1) return seconds_on(between, ranks);
  const CallSeconds in = seconds_on(inside, m), out = seconds_on(between, k);
  return [=](std::string_view collective, int64_t bytes) {
    if (collective == name_of(Collective::all_gather))  // what a rank brings
      return out(collective, bytes) + in(collective, bytes * k);
    if (collective == name_of(Collective::reduce_scatter))
      return in(collective, bytes) + out(collective, bytes / m);
    if (collective == name_of(Collective::all_reduce))
      return in(name_of(Collective::reduce_scatter), bytes) + out(collective, bytes / m) +
             in(name_of(Collective::all_gather), bytes / m);
    return out(collective, bytes) + in(collective, bytes);
  };
}

}  // namespace kiln
