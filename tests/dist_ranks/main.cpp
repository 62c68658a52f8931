// Tests for several processes: mpirun -n N dist_ranks --gtest_filter=... Every rank runs the
// same tests in the same order; a rank that fails one leaves with status 1, and mpirun with it.
#include <gtest/gtest.h>

#include "dist_ranks/this_rank.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  kiln::ThisRank& here = kiln::this_rank();
  here.mpi = kiln::start_mpi();
  here.env = kiln::read_rank_env();
  if (here.mpi->rank() != 0) {  // one rank's list is enough; failures are reported by each
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new kiln::FailuresOnly(here.mpi->rank()));
  }
  const int status = RUN_ALL_TESTS();
  if (status == 0) here.mpi->finish();
  here.mpi.reset();
  return status;
}
