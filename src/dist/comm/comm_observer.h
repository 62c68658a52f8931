// The interface for observing a communicator's calls as they are carried out, on the thread that does: what
// happens to the bytes of a collective attaches here.
#pragma once

#include "device/backend.h"
#include "dist/comm/comm_call.h"

namespace kiln {

class CommObserver {
 public:
  virtual ~CommObserver() = default;
  virtual void on_call_begin(const CommCall&) {}
  // The transport has returned: on the CPU the result is there, on CUDA it is queued on `stream`.
  virtual void on_call_end(const CommCall&, Stream /*stream*/) {}
};

}  // namespace kiln
