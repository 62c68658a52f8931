#include "dist/comm/nccl/load_nccl.h"

#include <dlfcn.h>

#include <cstdlib>
#include <vector>

#include "base/error.h"
#include "dist/comm/nccl_transport.h"

namespace kiln {
namespace {

std::vector<std::string> places() {
  const std::string name = cat("libnccl.so.", NCCL_MAJOR);
  std::vector<std::string> paths = {name};
  std::vector<std::string> roots;
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const char* root = std::getenv(variable)) roots.emplace_back(root);
  }
  roots.emplace_back("/usr/local/cuda");
  for (const std::string& root : roots) {
    for (const char* folder : {"/lib64/", "/lib/"}) paths.push_back(cat(root, folder, name));
  }
  return paths;
}

template <class Function>
void find(void* library, const char* name, Function& function, std::string& why_not) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) why_not = cat("this NCCL lacks ", name);
}

Nccl load() {
  Nccl n;
  void* library = nullptr;
  for (const std::string& path : places()) {
    library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) break;
  }
  if (library == nullptr) {
    n.why_not = cat("libnccl.so.", NCCL_MAJOR, " was not found");
    return n;
  }
  find(library, "ncclGetVersion", n.get_version, n.why_not);
  find(library, "ncclGetUniqueId", n.get_unique_id, n.why_not);
  find(library, "ncclCommInitRankConfig", n.init_rank, n.why_not);
  find(library, "ncclCommSplit", n.split, n.why_not);
  find(library, "ncclCommDestroy", n.destroy, n.why_not);
  find(library, "ncclCommAbort", n.abort, n.why_not);
  find(library, "ncclCommGetAsyncError", n.async_error, n.why_not);
  find(library, "ncclGetErrorString", n.error_string, n.why_not);
  find(library, "ncclGetLastError", n.last_error, n.why_not);
  find(library, "ncclAllReduce", n.all_reduce, n.why_not);
  find(library, "ncclAllGather", n.all_gather, n.why_not);
  find(library, "ncclReduceScatter", n.reduce_scatter, n.why_not);
  find(library, "ncclReduce", n.reduce, n.why_not);
  find(library, "ncclBroadcast", n.broadcast, n.why_not);
  find(library, "ncclSend", n.send, n.why_not);
  find(library, "ncclRecv", n.recv, n.why_not);
  find(library, "ncclGroupStart", n.group_start, n.why_not);
  find(library, "ncclGroupEnd", n.group_end, n.why_not);
  if (n.why_not.empty()) n.get_version(&n.version);
  return n;
}

}  // namespace

const Nccl& load_nccl() {
  static const Nccl kNccl = load();
  return kNccl;
}

bool nccl_built_in() { return true; }

std::string nccl_library(std::string* why_not) {
  const Nccl& n = load_nccl();
  if (why_not != nullptr) *why_not = n.why_not;
  if (!n.why_not.empty()) return {};
  return cat("NCCL ", n.version / 10000, ".", n.version / 100 % 100, ".", n.version % 100);
}

}  // namespace kiln
