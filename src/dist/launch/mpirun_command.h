// How mpirun is started: its command line and its environment.
#pragma once

#include <string>
#include <vector>

#include "dist/launch/launch.h"

namespace kiln {

// What ranks are told, in mpirun's environment and not on its command line, where every user of the machine
// would read it: the token by which ranks of one job know each other is among it.
std::vector<std::string> mpirun_environment(const LaunchRequest& request, const std::string& folder,
                                            const std::string& token);

// `folder`: the launch's own, gone with it. `cores`: of this machine.
std::vector<std::string> mpirun_args(const LaunchRequest& request, const std::string& mpirun,
                                     const std::string& folder, int cores);

// 128 random bits.
std::string new_job_token();

}  // namespace kiln
