// The ranks of one MPI communicator and their collectives, on host memory. Blocking; polled with the
// time-out. Used by one thread.
#pragma once

#include <mpi.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dist/comm/comm_call.h"
#include "dist/comm/mpi/mpi_wait.h"
#include "dist/comm/mpi_process.h"

namespace kiln {

// One end of what passes between two ranks.
struct Parcel {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  int peer = -1;  // -1: there is none
};

class MpiGroup {
 public:
  // Takes the communicator over. `members`: each rank's number in the whole run, which messages name.
  MpiGroup(MPI_Comm comm, MpiAlarm& alarm, const MpiOptions& options);
  ~MpiGroup();
  MpiGroup(const MpiGroup&) = delete;
  MpiGroup& operator=(const MpiGroup&) = delete;

  int rank() const { return rank_; }
  int world() const { return world_; }
  MPI_Comm comm() const { return comm_; }
  MpiAlarm& alarm() const { return alarm_; }
  const MpiOptions& options() const { return options_; }

  // Returns when every rank has come with the same call. Throws, on all of them, where one brings another
  // call, or does not come in time.
  void roll_call(const std::string& title, const std::string& text, uint64_t sequence);
  // The same between the two ends of each parcel: of those this rank sends, and of those it takes.
  void greet(const CommCall& call);

  // After a roll call. Counts are elements; `title` begins what a failure says.
  void all_reduce(std::byte* data, int64_t count, DType dtype, const std::string& title);
  void reduce_scatter(const std::byte* in, std::byte* out, int64_t count_each, int64_t stride, DType dtype,
                      const std::string& title);  // in: one part for each rank, `stride` elements apart
  void all_gather(const std::byte* in, std::byte* out, std::size_t bytes, std::size_t stride,
                  const std::string& title);
  // In place at the root; elsewhere `data` is left with parts of the sum.
  void reduce(std::byte* data, int64_t count, DType dtype, int root, const std::string& title);
  void broadcast(std::byte* data, std::size_t bytes, int root, const std::string& title);
  void pass(const Parcel& given, const Parcel& taken, const std::string& title);

  // Every rank's bytes, for small set-up data.
  void gather_small(const void* mine, void* all, int bytes, const std::string& title);

 private:
  friend class RankedSum;
  void finish(MpiWaits& waits, const std::string& title);  // waits for all; throws naming who is not done
  void send(MpiWaits& waits, const void* data, std::size_t bytes, int to, int tag);
  void receive(MpiWaits& waits, void* data, std::size_t bytes, int from, int tag);
  MpiWaits waits() { return {alarm_, options_.comm.timeout}; }
  std::string names(const std::vector<int>& ranks) const;
  void deterministic_sum(std::byte* data, int64_t count, DType dtype, std::optional<int> taker,
                         const std::string& title);
  void library_reduce(const std::byte* in, std::byte* out, int64_t count, DType dtype, bool scatter,
                      const std::string& title);

  MPI_Comm comm_;
  MpiAlarm& alarm_;
  MpiOptions options_;
  int rank_ = 0, world_ = 1;
  std::vector<int> members_;
  std::vector<std::byte> pieces_;  // of the others, on their way into a sum
};

// dst[i] = src[0][i] + src[1][i] + ... in this order, in the accumulation type. dst may be one of src.
void sum_in_order(std::byte* dst, const std::vector<const std::byte*>& src, int64_t count, DType dtype);

}  // namespace kiln
