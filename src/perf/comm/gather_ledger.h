// Did a gathered weight arrive before it was needed? Slack and exposed time of every gather of a step of
// sharded weights, by layer, and what another depth of prefetch or another link would make of it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "perf/comm/overlap_replay.h"

namespace kiln {

// One gather and the use it was made for; us from the beginning of the step.
struct GatherUse {
  std::string weight, phase;  // forward, recompute, backward
  int64_t bytes = 0;          // of the whole weight
  bool ahead = false;         // queued before it was wanted
  double queued = 0, wanted = 0, ready = 0;

  bool in_time() const { return ready <= wanted; }
  double slack() const { return in_time() ? wanted - ready : 0; }
  double exposed() const { return in_time() ? 0 : ready - wanted; }
};

// "model.layers.3.self_attn.qkv" belongs to "layers.3", anything else to itself.
std::string layer_of(std::string_view weight);

struct LayerGathers {
  std::string layer, phase;
  int gathers = 0, in_time = 0;
  int64_t bytes = 0;
  double slack = 0;  // the least of those in time
  double exposed = 0;
};
// In the order of use; a layer that is used again in another phase is another row.
std::vector<LayerGathers> by_layer(std::span<const GatherUse> uses);

// What a step makes of weights in order: each is used for a while, and in backward a gradient of it is then
// summed into the shards.
struct GatherWindowTime {
  std::string weight, phase;
  int64_t bytes = 0;
  double compute = 0;         // us from having it to wanting the next
  int64_t scatter_bytes = 0;  // of the gradient that is complete after it; 0: none
};
std::vector<GatherWindowTime> windows_of(std::span<const GatherUse> uses, double end);

struct GatherReplay {
  std::vector<GatherUse> uses;
  double end = 0;            // all computed and all sums in place
  double communication = 0;  // us in which the link was busy
  double exposed = 0;        // us in which the rank was stalled
};
// With `prefetch` weights gathered ahead of the one in use, in as many slots and one: a gather starts when
// the weight that had its slot is done with. As many sums are in flight. Calls run one after the other.
GatherReplay replay_gathers(std::span<const GatherWindowTime> windows, int prefetch, int ranks,
                            const CallSeconds& seconds);

}  // namespace kiln
