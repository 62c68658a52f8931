#include "dist/launch/rank_limit.h"

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "device/cpu/host_limits.h"

namespace kiln {

bool shares_cores(int ranks, int cores) { return ranks > cores; }

void check_rank_count(std::string_view option, int ranks, int cores, bool oversubscribe) {
  const int most = kMostRanksPerCore * std::max(1, cores);
  if (oversubscribe || ranks <= most) return;
  throw Error(cat(option, " is ", ranks, "; expected at most ", most, " ranks on ", std::max(1, cores),
                  cores > 1 ? " cores, " : " core, ", kMostRanksPerCore, " to a core"),
              "--oversubscribe starts them all the same: they share the cores, and slow the machine down",
              ErrorKind::usage);
}

void check_rank_count(std::string_view option, int ranks, bool oversubscribe) {
  check_rank_count(option, ranks, read_host_limits().cpus_usable,
                   oversubscribe || std::getenv(kOversubscribeVariable) != nullptr);
}

int ranks_of_a_machine(int ranks, std::string_view hosts) {
  if (hosts.empty()) return ranks;
  const int machines = 1 + static_cast<int>(std::count(hosts.begin(), hosts.end(), ','));
  return (ranks + machines - 1) / machines;
}

}  // namespace kiln
