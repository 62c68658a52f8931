#include "studies/gate/gate_cache.h"

#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/atomic_file.h"
#include "base/build_info.h"
#include "base/error.h"
#include "base/json_reader.h"

namespace kiln {
namespace {

constexpr const char* kSchema = "kiln-gate-1";

}  // namespace

std::string program_fingerprint() {
  struct stat s{};
  if (::stat("/proc/self/exe", &s) != 0) return build_info().build_id;
  return cat(build_info().build_id, " ", static_cast<int64_t>(s.st_size), " ",
             static_cast<int64_t>(s.st_mtim.tv_sec), ".", static_cast<int64_t>(s.st_mtim.tv_nsec));
}

GateCache::GateCache(std::string folder) {
  if (folder.empty()) return;
  path_ = (std::filesystem::path(folder) / "gate-cache.json").string();
  read();
}

void GateCache::read() {
  std::map<std::string, Finding> stored;
  std::ifstream in(path_, std::ios::binary);
  if (!in) return;
  std::ostringstream text;
  text << in.rdbuf();
  try {
    const Json file = parse_json(text.str(), {}, path_);
    if (file.value("schema", std::string()) != kSchema ||
        file.value("program", std::string()) != program_fingerprint())
      return;
    for (const auto& [key, value] : file.at("passed").items()) {
      const Finding f{value.value("tensor", std::string()), value.value("error", std::nan("")),
                      value.value("allowed", 0.0)};
      if (f.error <= f.allowed) stored.emplace(key, f);
    }
  } catch (const Error&) {
    return;  // nothing that kiln wrote: the checks are made again, and the file with them
  }
  passed_.merge(stored);
}

const Finding* GateCache::find(const std::string& key) const {
  const auto found = passed_.find(key);
  return found == passed_.end() ? nullptr : &found->second;
}

void GateCache::keep(const std::string& key, const Finding& finding) {
  passed_[key] = finding;
  changed_ = true;
}

void GateCache::save() {
  if (path_.empty() || !changed_) return;
  read();
  Json passed = Json::object();
  for (const auto& [key, f] : passed_)
    passed[key] = {{"tensor", f.tensor}, {"error", f.error}, {"allowed", f.allowed}};
  const Json file = {{"schema", kSchema}, {"program", program_fingerprint()}, {"passed", passed}};
  try {
    write_file_atomically(path_, cat(file.dump(), "\n"));
    changed_ = false;
  } catch (const Error&) {
    path_.clear();
  }
}

}  // namespace kiln
