#include "studies/shared_ceilings.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/json.h"

namespace kiln {
namespace {

std::string key_of(RankContext& ctx, const std::vector<DType>& dtypes) {
  std::string key = cat(ctx.device().str(), " ", name_of(ctx.traits().isa), " ", ctx.pool().threads());
  for (const DType t : dtypes) key += cat(" ", name_of(t));
  return key;
}

}  // namespace

SharedCeilings::SharedCeilings() {
  if (std::getenv(kCeilingsVariable) != nullptr) return;
  std::string name = (std::filesystem::temp_directory_path() / "kiln-ceilings-XXXXXX").string();
  const int file = ::mkstemp(name.data());
  if (file < 0) return;  // each process measures its own, as one that is started alone does
  ::close(file);
  path_ = name;
  ::setenv(kCeilingsVariable, path_.c_str(), 1);
}

SharedCeilings::~SharedCeilings() {
  if (path_.empty()) return;
  ::unsetenv(kCeilingsVariable);
  ::unlink(path_.c_str());
}

std::optional<Ceilings> shared_ceilings(RankContext& ctx, const std::vector<DType>& dtypes) {
  const char* const path = std::getenv(kCeilingsVariable);
  if (path == nullptr) return {};
  const std::string key = key_of(ctx, dtypes);
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    Json stored;
    try {
      stored = Json::parse(line);
    } catch (const Error&) {  // cut off: its process was killed
      continue;
    }
    if (stored.value("key", "") != key) continue;
    Ceilings c;
    c.copy = stored.value("copy", 0.0);
    for (const DType t : dtypes) {
      const Json& rate = stored.at("flops").at(name_of(t));
      c.flops[t] = {rate.value("name", ""), rate.value("per_second", 0.0)};
    }
    return c;
  }
  return {};
}

void share_ceilings(RankContext& ctx, const std::vector<DType>& dtypes, const Ceilings& ceilings) {
  const char* const path = std::getenv(kCeilingsVariable);
  if (path == nullptr) return;
  Json flops = Json::object();
  for (const auto& [dtype, rate] : ceilings.flops)
    flops[std::string(name_of(dtype))] = {{"name", rate.name}, {"per_second", rate.per_second}};
  const Json line = {{"key", key_of(ctx, dtypes)}, {"copy", ceilings.copy}, {"flops", flops}};
  std::ofstream(path, std::ios::app) << line.dump() << "\n";
}

}  // namespace kiln
