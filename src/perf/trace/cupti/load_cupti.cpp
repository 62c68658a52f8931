#include "perf/trace/cupti/load_cupti.h"

#include <dlfcn.h>

#include <cstdlib>
#include <vector>

#include "base/error.h"

namespace kiln {
namespace {

constexpr int kMajor = CUPTI_API_VERSION / 10000;  // layouts of records change with it

// Toolkits keep it next to the other libraries or in its own folder, which no run path names.
std::vector<std::string> places() {
  const std::vector<std::string> names = {cat("libcupti.so.", kMajor), "libcupti.so"};
  std::vector<std::string> paths = names;
  std::vector<std::string> roots;
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const char* root = std::getenv(variable)) roots.emplace_back(root);
  }
  roots.emplace_back("/usr/local/cuda");
  for (const std::string& root : roots) {
    for (const char* folder : {"/extras/CUPTI/lib64/", "/lib64/"}) {
      for (const std::string& name : names) paths.push_back(cat(root, folder, name));
    }
  }
  return paths;
}

template <class Function>
void find(void* library, const char* name, Function& function, std::string& why_not) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) why_not = cat("this CUPTI lacks ", name);
}

Cupti load() {
  Cupti c;
  void* library = nullptr;
  for (const std::string& path : places()) {
    library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) break;
  }
  if (library == nullptr) {
    c.why_not = cat("libcupti.so.", kMajor, " was not found");
    return c;
  }
  find(library, "cuptiGetVersion", c.get_version, c.why_not);
  find(library, "cuptiGetResultString", c.get_result_string, c.why_not);
  find(library, "cuptiActivityRegisterCallbacks", c.register_callbacks, c.why_not);
  find(library, "cuptiActivityEnable", c.enable, c.why_not);
  find(library, "cuptiActivityDisable", c.disable, c.why_not);
  find(library, "cuptiActivityFlushAll", c.flush_all, c.why_not);
  find(library, "cuptiActivityGetNextRecord", c.get_next_record, c.why_not);
  find(library, "cuptiActivityGetNumDroppedRecords", c.get_num_dropped, c.why_not);
  find(library, "cuptiGetTimestamp", c.get_timestamp, c.why_not);
  find(library, "cuptiGetCallbackName", c.get_callback_name, c.why_not);
  uint32_t version = 0;
  if (c.why_not.empty() &&
      (c.get_version(&version) != CUPTI_SUCCESS || static_cast<int>(version) / 10000 != kMajor))
    c.why_not =
        cat("the libcupti.so found is of version ", version, ", and kiln was built with ", CUPTI_API_VERSION);
  return c;
}

}  // namespace

const Cupti& load_cupti() {
  static const Cupti kCupti = load();
  return kCupti;
}

}  // namespace kiln
