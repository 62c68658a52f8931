#include "dist/launch/rank_env.h"

#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "base/error.h"

namespace kiln {
namespace {

constexpr int kMostRanks = 1 << 16;

// The names under which a launcher says it. The first two are set both or neither.
struct Launcher {
  const char* name;
  const char *rank, *world, *local_rank, *local_world;
};
constexpr Launcher kLaunchers[] = {
    {"kiln", "KILN_RANK", "KILN_WORLD", "KILN_LOCAL_RANK", "KILN_LOCAL_WORLD"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
};
// SLURM_STEP_NUM_TASKS and not SLURM_NTASKS: the latter is set in a batch script too, which is no rank.
constexpr Launcher kSlurm = {"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID",
                             "SLURM_STEP_TASKS_PER_NODE"};

std::string_view value_of(const ReadEnvironment& environment, const char* name) {
  const char* const text = environment(name);
  return text == nullptr ? std::string_view{} : std::string_view(text);
}

int number(std::string_view name, std::string_view text, int least, int most) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < least || value > most)
    throw Error(cat(name, " is '", text, "'; expected a whole number from ", least, " to ", most),
                "a launcher sets it (kiln run, mpirun, torchrun, srun); unset it where none did");
  return value;
}

std::optional<RankEnv> read_launcher(const ReadEnvironment& environment, const Launcher& l) {
  const std::string_view rank = value_of(environment, l.rank), world = value_of(environment, l.world);
  if (rank.empty() && world.empty()) return {};
  if (rank.empty() || world.empty())
    throw Error(
        cat(rank.empty() ? l.world : l.rank, " is set and ", rank.empty() ? l.rank : l.world,
            " is not: half of what ", l.name, " says to a rank"),
        cat("start ranks with `kiln run --nproc N -- COMMAND`, or unset ", rank.empty() ? l.world : l.rank));
  RankEnv r;
  r.source = l.name;
  r.world = number(l.world, world, 1, kMostRanks);
  r.rank = number(l.rank, rank, 0, r.world - 1);
  r.local_rank = r.rank;
  r.local_world = r.world;
  if (const auto text = value_of(environment, l.local_world); !text.empty()) {
    const auto digits = text.substr(0, text.find_first_not_of("0123456789"));  // Slurm writes "4(x2)"
    r.local_world = number(l.local_world, digits, 1, r.world);
  }
  if (const auto text = value_of(environment, l.local_rank); !text.empty())
    r.local_rank = number(l.local_rank, text, 0, kMostRanks - 1);
  return r;
}

void add_master(const ReadEnvironment& environment, RankEnv& r) {
  const std::string_view address = value_of(environment, "MASTER_ADDR"),
                         port = value_of(environment, "MASTER_PORT");
  r.master_address = std::string(address);
  if (!port.empty()) r.master_port = number("MASTER_PORT", port, 1, 65535);
}

}  // namespace

RankEnv read_rank_env(const ReadEnvironment& environment) {
  std::optional<RankEnv> found;
  for (const Launcher& l : kLaunchers) {
    const std::optional<RankEnv> r = read_launcher(environment, l);
    if (!r) continue;
    if (!found) {
      found = r;
    } else if (found->rank != r->rank || found->world != r->world) {
      throw Error(cat(found->source, " says rank ", found->rank, " of ", found->world, ", ", r->source,
                      " says rank ", r->rank, " of ", r->world),
                  cat("unset ", l.rank, " and ", l.world, ", or start the ranks with one launcher alone"));
    }
  }
  if (!found && !value_of(environment, kSlurm.world).empty()) found = read_launcher(environment, kSlurm);
  if (!found) return {};
  add_master(environment, *found);
  return *found;
}

RankEnv read_rank_env() {
  return read_rank_env([](const char* name) { return std::getenv(name); });
}

}  // namespace kiln
