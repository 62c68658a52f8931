// Any environment, as lines of NAME=VALUE, is a rank of a run, none, or an Error in one line.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>

#include "base/error.h"
#include "bounds.h"
#include "dist/launch/ranks.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const kiln::Bounds bounded(size);
  std::map<std::string, std::string> variables;
  std::istringstream lines(std::string(reinterpret_cast<const char*>(data), size));
  for (std::string line; std::getline(lines, line);) {
    if (line.find('\0') != std::string::npos) continue;  // no variable holds one
    const std::size_t equals = line.find('=');
    if (equals != std::string::npos) variables[line.substr(0, equals)] = line.substr(equals + 1);
  }
  const kiln::ReadEnvironment environment = [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  try {
    const kiln::RankEnv env = kiln::read_rank_env(environment);
    if (env.rank < 0 || env.rank >= env.world || env.local_rank < 0 || env.local_world < 1) std::abort();
    if (env.master_port < 0 || env.master_port > 65535) std::abort();
    const kiln::RanksRequest request = kiln::launched_request(environment);
    if (request.world < 0 || request.comm.timeout.count() < 1) std::abort();
  } catch (const kiln::Error& error) {
    if (std::string(error.what()).empty()) std::abort();
  }
  return 0;
}
