// Compiled kernels on disk, by what they were made from: source, architecture and compiler. An entry says
// what it is, how long, and its checksum; one that is cut short, foreign or changed is left aside and made
// again. Entries are written beside and renamed, so that processes may share a folder.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace kiln::compile {

struct CacheKey {
  std::string source, arch, compiler;
};

class KernelCache {
 public:
  // `folder` empty: none is kept.
  explicit KernelCache(std::string folder) : folder_(std::move(folder)) {}
  // $KILN_KERNEL_CACHE, else kiln/kernels in $XDG_CACHE_HOME or ~/.cache; empty where there is no home.
  static std::string default_folder();

  std::optional<std::vector<std::byte>> find(const CacheKey& key) const;
  // What find() gives, or what `make` makes, which is then kept. A folder that cannot be written is said
  // once, in why_not_kept(), and is no error.
  std::vector<std::byte> get(const CacheKey& key, const std::function<std::vector<std::byte>()>& make);

  std::string path_of(const CacheKey& key) const;
  int hits() const { return hits_; }
  int misses() const { return misses_; }
  const std::string& why_not_kept() const { return why_not_kept_; }

 private:
  void keep(const CacheKey& key, const std::vector<std::byte>& code);

  std::string folder_, why_not_kept_;
  int hits_ = 0, misses_ = 0;
};

}  // namespace kiln::compile
