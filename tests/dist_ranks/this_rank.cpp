#include "dist_ranks/this_rank.h"

namespace kiln {

ThisRank& this_rank() {
  static ThisRank here;
  return here;
}

namespace {

RankOptions options_on(Device device) {
  RankOptions o;
  o.device = device;
  o.rank = this_rank().mpi->rank();
  o.world = this_rank().mpi->world();
  o.threads = 1;
  o.matmuls = false;
  return o;
}

std::unique_ptr<Transport> transport_of(RankContext& ctx, std::unique_ptr<NcclRendezvous>& rendezvous,
                                        const MpiOptions& options, bool nccl) {
  if (!nccl) return this_rank().mpi->transport(ctx.backend(), options);
  rendezvous = rendezvous_over_mpi(*this_rank().mpi, options);
  return make_nccl_transport(ctx.backend(), *rendezvous, options);
}

}  // namespace

RankRig::RankRig(Device device, const MpiOptions& options, bool nccl)
    : ctx(options_on(device)), ranks(ctx, transport_of(ctx, rendezvous, options, nccl), options.comm) {}

}  // namespace kiln
