// Devices in nodes: a quick link inside each, another between them. What a collective takes there, by the
// ring's formulas (dist/comm/link_cost.cpp) on each level. With m ranks of a group in a node and k such
// nodes, S the bytes of the whole tensor:
//
//   reduce_scatter   inside, of S over m; then between, of S/m over k, by every rank on its own link
//   all_gather       between, to S/m; then inside, to S
//   all_reduce       reduce-scatter inside, all-reduce between of S/m, all-gather inside
//
// A group inside one node, or with one rank in each, is a single ring.
#pragma once

#include "dist/comm/link_model.h"
#include "perf/comm/overlap_replay.h"

namespace kiln {

struct Topology {
  int node = 8;               // devices of a node
  LinkModel inside, between;  // of each device

  // Ranks `stride` devices apart, from the first on.
  int group_in_node(int ranks, int stride) const;
  CallSeconds seconds(int ranks, int stride = 1) const;
};

}  // namespace kiln
