// Which gradients share a collective. Few large messages cost less than many small ones, but a message can
// only leave when all of it is there; a cap on its size is the compromise.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "autograd/param_store.h"
#include "dist/comm/communicator.h"

namespace kiln {

// Tensors of these bytes, in the order backward completes them, into buckets of at most `cap` bytes. A tensor
// above the cap gets a bucket of its own and leaves the open one open, so that the small ones between large
// ones (norms between matrices) still share. Buckets are in the order of their last tensors: that of becoming
// complete.
std::vector<std::vector<int>> assign_buckets(std::span<const int64_t> bytes, double cap);

// Whole tensors to ranks, each to the one that has least so far, the lower of two that have the same. `load`
// is what each rank has, before and after.
std::vector<int> assign_owners(std::span<const int64_t> sizes, std::span<int64_t> load);

struct Bucket {
  std::vector<Param*> params;  // in arena order
  int64_t elements = 0;        // padding with them
  std::string name;
  bool neighbours = true;  // one after the other in arena order
  Tensor range;            // of the gradient arena; undefined where they are not, or have no arena

  // On their way through a step.
  int waiting = 0;        // parameters whose gradients are not complete
  Tensor grads;           // where backward writes, for strategies that keep no arena
  Tensor sent, received;  // while in flight
  bool placed = false;    // it is received where it belongs
  bool limited = true;    // it counts against the limit of buckets in flight
  CommHandle handle;
  bool added = false;  // an earlier micro-step's sum is there already
};

// The trainable parameters of a store, which must be materialized. `cap` in bytes of the gradient arena's
// dtype, and never more than `share` of all their gradients.
std::vector<Bucket> make_buckets(ParamStore& params, double cap, double share = 1);

}  // namespace kiln
