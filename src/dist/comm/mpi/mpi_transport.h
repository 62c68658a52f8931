// The `mpi` transport: a group's calls, on host memory directly, on a GPU's through pinned memory.
#pragma once

#include <memory>

#include "device/backend.h"
#include "device/owned.h"
#include "dist/comm/mpi/mpi_group.h"

namespace kiln {

class MpiTransport final : public Transport {
 public:
  MpiTransport(MPI_Comm comm, std::shared_ptr<MpiAlarm> alarm, Backend& backend, const MpiOptions& options);

  std::string_view name() const override { return "mpi"; }
  int rank() const override { return group_.rank(); }
  int world() const override { return group_.world(); }
  void run(const CommCall& call, Stream stream) override;
  std::unique_ptr<Transport> split(int color, int key) override;
  void abort(const std::string& why) override { alarm_->raise(why); }
  std::optional<std::chrono::steady_clock::time_point> all_arrived() const override { return arrived_; }

 private:
  void run_on_host(const CommCall& call, const std::string& title);
  // Part of a collective that passes through the host's pinned stage in one go.
  struct StagedPiece {
    const CommCall& call;
    const std::string& title;
    int64_t first, count;  // elements
    int64_t each;          // a rank's part of the tensor
    std::byte* second;     // of the stage: behind what is brought, what is taken
  };
  void run_staged(const CommCall& call, const std::string& title, Stream stream);
  void stage_piece(const StagedPiece& piece, Stream stream);
  void pass_staged(const CommCall& call, const std::string& title, Stream stream);
  std::byte* stage();

  std::shared_ptr<MpiAlarm> alarm_;
  Backend& backend_;
  MpiGroup group_;
  uint64_t calls_ = 0;
  std::chrono::steady_clock::time_point arrived_{};
  std::unique_ptr<PinnedMemory> stage_;
};

}  // namespace kiln
