// Which rank of how many this process is, as its launcher says in the environment: kiln run, mpirun
// (Open MPI), torchrun, a PMI launcher (MPICH, Intel MPI) or Slurm's srun.
#pragma once

#include <functional>
#include <string>

namespace kiln {

struct RankEnv {
  std::string source;  // "kiln", "Open MPI", "torchrun", "PMI", "Slurm"; empty: started by hand
  int rank = 0, world = 1;
  int local_rank = 0, local_world = 1;  // among the ranks of this machine; which GPU it takes
  std::string master_address;           // of torchrun's rendezvous; empty where none was given
  int master_port = 0;

  bool launched() const { return !source.empty(); }
};

using ReadEnvironment = std::function<const char*(const char*)>;  // as std::getenv

// Throws Error for a launcher's variables that are half there, are no numbers, or contradict another's.
// Slurm's count only where nobody else's are set: mpirun inside an allocation inherits them from its own
// start, and then they describe mpirun and not the rank.
RankEnv read_rank_env(const ReadEnvironment& environment);
RankEnv read_rank_env();  // of this process

}  // namespace kiln
