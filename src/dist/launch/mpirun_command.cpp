#include "dist/launch/mpirun_command.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <random>
#include <string_view>
#include <utility>

#include "dist/launch/rank_limit.h"
#include "dist/launch/ranks.h"

namespace kiln {
namespace {

using Variables = std::vector<std::pair<std::string, std::string>>;

Variables variables_of(const LaunchRequest& r, const std::string& folder, const std::string& token) {
  Variables v = {{kTransportVariable, r.transport},
                 {kTimeoutVariable, cat(r.timeout)},
                 {kLaunchFolderVariable, folder},
                 {kJobVariable, token}};
  if (!r.flight_folder.empty()) v.emplace_back(kFlightVariable, r.flight_folder);
  return v;
}

}  // namespace

std::string new_job_token() {
  std::random_device random;
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), "%08x%08x%08x%08x", random(), random(), random(), random());
  return text.data();
}

std::vector<std::string> mpirun_environment(const LaunchRequest& request, const std::string& folder,
                                            const std::string& token) {
  const Variables ours = variables_of(request, folder, token);
  std::vector<std::string> all;
  for (char** v = environ; *v != nullptr; ++v) {
    const std::string_view line(*v);
    const std::string_view name = line.substr(0, line.find('='));
    if (std::none_of(ours.begin(), ours.end(), [&](const auto& o) { return o.first == name; }))
      all.emplace_back(line);
  }
  for (const auto& [name, value] : ours) all.push_back(cat(name, "=", value));
  return all;
}

std::vector<std::string> mpirun_args(const LaunchRequest& r, const std::string& mpirun,
                                     const std::string& folder, int cores) {
  std::vector<std::string> args = {mpirun, "--allow-run-as-root", "--oversubscribe", "-n",
                                   std::to_string(r.ranks)};
  auto add = [&](std::initializer_list<std::string> more) { args.insert(args.end(), more); };
  // mpirun would bind each rank to one core, or to a socket: its own threads would then share that core, and
  // ranks that outnumber cores could not move to a free one. Ranks take their share of threads, the kernel
  // places them.
  add({"--bind-to", "none"});
  if (!r.hosts.empty()) {
    add({"--host", r.hosts});
  } else {
    // Nothing of a local run is reachable from elsewhere, and what it keeps in files goes with the launch's
    // folder: a killed mpirun would leave its session in /tmp and the ranks' segments in /dev/shm. mpirun's
    // own port stays open to all: Open MPI 4.1 binds it to every address, whatever it is told.
    add({"--mca", "pml", "ob1", "--mca", "btl", "self,vader", "--mca", "oob_tcp_if_include", "127.0.0.0/8"});
    add({"--mca", "orte_tmpdir_base", folder, "--mca", "btl_vader_backing_directory", folder});
  }
  // Inside MPI itself; kiln's own waits do so by themselves (MpiWaits).
  if (shares_cores(ranks_of_a_machine(r.ranks, r.hosts), cores)) add({"--mca", "mpi_yield_when_idle", "1"});
  for (const auto& [name, value] : variables_of(r, {}, {})) add({"-x", name});
  args.insert(args.end(), r.command.begin(), r.command.end());
  return args;
}

}  // namespace kiln
