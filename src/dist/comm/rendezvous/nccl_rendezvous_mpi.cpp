#include "dist/comm/nccl_transport.h"

namespace kiln {
namespace {

class MpiMeeting final : public NcclRendezvous {
 public:
  MpiMeeting(MpiProcess& mpi, const MpiOptions& options)
      : mpi_(mpi), options_(options), env_(read_rank_env()) {}

  int rank() const override { return mpi_.rank(); }
  int world() const override { return mpi_.world(); }
  int local_rank() const override { return env_.local_rank; }
  std::vector<std::string> exchange(const std::string& mine) override {
    return mpi_.exchange(mine, options_);
  }
  std::unique_ptr<Transport> roll_call(Backend& backend, const MpiOptions& options) override {
    MpiOptions only = options;
    only.roll_call_only = true;
    return mpi_.transport(backend, only);
  }

 private:
  MpiProcess& mpi_;
  MpiOptions options_;
  RankEnv env_;
};

}  // namespace

std::unique_ptr<NcclRendezvous> rendezvous_over_mpi(MpiProcess& mpi, const MpiOptions& options) {
  return std::make_unique<MpiMeeting>(mpi, options);
}

}  // namespace kiln
