// What moves the bytes of a communicator: threads of one process, MPI, NCCL, nothing. Calls come one at a
// time, in the order of the communicator's queue, from its own thread; every rank makes the same calls in the
// same order.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "device/backend.h"
#include "dist/comm/comm_call.h"

namespace kiln {

class Transport {
 public:
  virtual ~Transport() = default;

  virtual std::string_view name() const = 0;
  virtual int rank() const = 0;
  virtual int world() const = 0;
  // Moves nothing that another rank waits for: its calls run at once on the rank's own thread and stream.
  virtual bool is_local() const { return false; }

  // Device memory that run() needs for this call besides its tensors. From any thread.
  virtual Bytes scratch(const CommCall&) const { return {}; }
  // On the CPU the call is over on return. On CUDA it is queued on `stream`, which follows the writer of
  // `in`. Throws what is wrong, naming the ranks; this rank's tensors are not accessed any more then.
  virtual void run(const CommCall& call, Stream stream) = 0;
  // A transport over the ranks of the same colour, ordered by (key, rank); null where `color` is negative.
  // Called by all ranks.
  virtual std::unique_ptr<Transport> split(int color, int key) = 0;
  // This rank gives up: ranks that wait for it are notified, its own run() too. From any thread; idempotent.
  virtual void abort(const std::string& why) = 0;

  // When the last rank came to the latest run(); nothing where the transport cannot know.
  virtual std::optional<std::chrono::steady_clock::time_point> all_arrived() const { return {}; }
};

}  // namespace kiln
