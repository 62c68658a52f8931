// One call of a collective, as the communicator passes it to a transport, and its record afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/dtype.h"
#include "base/units.h"

namespace kiln {

enum class Collective : uint8_t {
  all_reduce,      // out = sum over ranks of in; in == out
  all_gather,      // out = every rank's in, in rank order
  reduce_scatter,  // out = this rank's part of the sum of in
  reduce,          // out = the sum over ranks on the root; elsewhere partial sums may be left; in == out
  broadcast,       // out = the root's in; in == out on every rank
  send,            // in goes to `peer`
  recv,            // out comes from `peer`
  send_recv,       // in goes to `peer` while out comes from `source`: what a ring is made of
  barrier,         // moves nothing
};

std::string_view name_of(Collective c);
bool adds_up(Collective c);  // its result is a sum over ranks

struct CommCall {
  Collective what = Collective::barrier;
  std::string subject;  // what the tensor is, a parameter's name say
  DType dtype = DType::f32;
  int64_t count = 0;  // elements this rank brings; of recv: elements it takes
  std::byte* in = nullptr;
  std::byte* out = nullptr;      // may be `in`, or hold it at this rank's place
  std::byte* scratch = nullptr;  // as large as the transport requested
  int peer = -1;                 // root, or whom send and recv are with
  int source = -1;               // of send_recv
  int64_t take = 0;              // elements of out in send_recv
  uint64_t sequence = 0;         // of this communicator's calls, from 0

  Bytes bytes() const { return {static_cast<std::size_t>(count) * size_of(dtype)}; }
  std::string text() const;  // "all_reduce of 8 fp32 (w)": what ranks must agree on
};

// What rank-ordered sums need besides the tensor where another library carries their parts: memory for
// the others' copies of this rank's part.
Bytes deterministic_scratch(const CommCall& call, int world);

// Nanoseconds of std::chrono::steady_clock.
struct CommRecord {
  Collective collective = Collective::barrier;
  std::string subject;
  int64_t bytes = 0;                           // what this rank brings
  int64_t queued = 0, started = 0, ended = 0;  // started: when the last rank had come, where that is known
  uint64_t sequence = 0;                       // of the call
};

}  // namespace kiln
