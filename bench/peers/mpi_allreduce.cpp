// usage: mpirun -n N bench_mpi_allreduce [BYTES...]
// One all-reduce of fp32, called bare and through kiln's communicator, alternately within one run, so that
// other load on the machine affects both alike. Times are of the slowest rank; the median and the quarter
// points are printed.
#include <fmt/format.h>
#include <mpi.h>

#include <cstdlib>
#include <vector>

#include "dist/comm/communicator.h"
#include "dist/comm/mpi_process.h"
#include "perf/timing/timing.h"

namespace {

double slowest(double mine) {
  double all = 0;
  MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return all;
}

template <class Call>
double timed(Call call) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double begun = MPI_Wtime();
  call();
  return slowest(MPI_Wtime() - begun);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace kiln;
  const auto mpi = start_mpi();
  std::vector<std::size_t> sizes;
  for (int i = 1; i < argc; ++i) sizes.push_back(std::strtoull(argv[i], nullptr, 10));
  if (sizes.empty()) sizes = {1000, 100000, 1000000, 10000000, 100000000};
  RankOptions options;
  options.rank = mpi->rank();
  options.world = mpi->world();
  options.threads = 1;
  options.matmuls = false;
  {
    RankContext ctx(options);
    MpiOptions ranked, engine;
    engine.reduction = ReductionOrder::library;
    Communicator ours(ctx, mpi->transport(ctx.backend(), ranked)),
        theirs(ctx, mpi->transport(ctx.backend(), engine));
    if (mpi->rank() == 0)
      fmt::print(
          "{} ranks, fp32, ms: median (p20-p80) of the slowest rank\n{:>12} {:>26} {:>26} {:>26} {:>8}\n",
          mpi->world(), "bytes", "MPI_Allreduce", "kiln ranked", "kiln engine", "ranked/bare");
    for (const std::size_t bytes : sizes) {
      const Tensor t = ctx.zeros({static_cast<int64_t>(bytes / 4)}, DType::f32);
      std::vector<double> bare, own, lent;
      const int rounds = bytes > 20000000 ? 9 : 40;
      for (int i = -2; i < rounds; ++i) {
        const double a = timed([&] {
          MPI_Allreduce(MPI_IN_PLACE, t.raw(), static_cast<int>(t.numel()), MPI_FLOAT, MPI_SUM,
                        MPI_COMM_WORLD);
        });
        const double b = timed([&] { ours.all_reduce(ctx, t, "own").wait(ctx); });
        const double c = timed([&] { theirs.all_reduce(ctx, t, "engine").wait(ctx); });
        if (i < 0) continue;
        bare.push_back(a);
        own.push_back(b);
        lent.push_back(c);
      }
      const Timing a = summarize(bare), b = summarize(own), c = summarize(lent);
      const auto cell = [](const Timing& x) {
        return fmt::format("{:.3f} ({:.3f}-{:.3f})", 1e3 * x.p50, 1e3 * x.p20, 1e3 * x.p80);
      };
      if (mpi->rank() == 0)
        fmt::print("{:>12} {:>26} {:>26} {:>26} {:>8.2f}\n", bytes, cell(a), cell(b), cell(c), b.p50 / a.p50);
    }
  }
  mpi->finish();
  return 0;
}
