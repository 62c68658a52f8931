#include "compile/cache.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/atomic_file.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "base/mapped_file.h"

namespace kiln::compile {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic = "kiln kernel 1\n";

uint64_t fnv(std::string_view text, uint64_t hash = 0xcbf29ce484222325u) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

std::string hex(uint64_t x) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string s;
  for (int shift = 60; shift >= 0; shift -= 4) s += kDigits[x >> shift & 15u];
  return s;
}

std::string_view text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string whole_key(const CacheKey& k) { return cat(k.arch, "\n", k.compiler, "\n", k.source); }

// magic, length of the key, length of the code, checksums of both, key, code
struct Header {
  uint64_t key_bytes, code_bytes, hash;
  uint32_t crc, zero;
};

Header header_of(std::string_view key, std::string_view code) {
  return {key.size(), code.size(), fnv(code, fnv(key)),
          crc32c(std::as_bytes(std::span(code)), crc32c(std::as_bytes(std::span(key)))), 0};
}

// Only this user can have written it.
bool is_ours(const std::string& path) {
  struct stat s{};
  return ::stat(path.c_str(), &s) == 0 && S_ISREG(s.st_mode) && s.st_uid == ::geteuid() &&
         (s.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

}  // namespace

std::string KernelCache::default_folder() {
  if (const char* own = std::getenv("KILN_KERNEL_CACHE")) return own;
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != 0)
    return cat(cache, "/kiln/kernels");
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != 0)
    return cat(home, "/.cache/kiln/kernels");
  return {};
}

std::string KernelCache::path_of(const CacheKey& key) const {
  return cat(folder_, "/", key.arch, "-", hex(fnv(whole_key(key))));
}

std::optional<std::vector<std::byte>> KernelCache::find(const CacheKey& key) const {
  const std::string path = path_of(key);
  if (folder_.empty() || !is_ours(path)) return std::nullopt;
  try {
    const MappedFile file(path);
    std::string_view text = file.text();
    Header h{};
    if (text.size() < kMagic.size() + sizeof h || !text.starts_with(kMagic)) return std::nullopt;
    std::memcpy(&h, text.data() + kMagic.size(), sizeof h);
    text.remove_prefix(kMagic.size() + sizeof h);
    if (h.key_bytes > text.size() || h.code_bytes != text.size() - h.key_bytes) return std::nullopt;
    const std::string_view stored = text.substr(0, h.key_bytes), code = text.substr(h.key_bytes);
    const Header expected = header_of(stored, code);
    if (std::memcmp(&expected, &h, sizeof h) != 0 || stored != whole_key(key)) return std::nullopt;
    const auto* first = reinterpret_cast<const std::byte*>(code.data());
    return std::vector<std::byte>(first, first + code.size());
  } catch (const Error&) {
    return std::nullopt;
  }
}

void KernelCache::keep(const CacheKey& key, const std::vector<std::byte>& code) {
  if (folder_.empty()) return;
  const std::string path = path_of(key), own = cat(path, ".", static_cast<int64_t>(::getpid()));
  try {
    if (fs::create_directories(folder_)) fs::permissions(folder_, fs::perms::owner_all);
    const std::string text = whole_key(key);
    const Header h = header_of(text, text_of(code));
    AtomicFile file(own);
    file.append(kMagic);
    file.append(std::as_bytes(std::span(&h, 1)));
    file.append(text);
    file.append(std::span(code));
    file.commit();
    fs::permissions(own, fs::perms::owner_read | fs::perms::owner_write);
    fs::rename(own, path);
  } catch (const std::exception& error) {
    if (why_not_kept_.empty()) why_not_kept_ = cat("kernels are not kept in ", folder_, ": ", error.what());
    std::error_code ignored;
    fs::remove(own, ignored);
  }
}

std::vector<std::byte> KernelCache::get(const CacheKey& key,
                                        const std::function<std::vector<std::byte>()>& make) {
  if (auto found = find(key)) {
    ++hits_;
    return std::move(*found);
  }
  ++misses_;
  std::vector<std::byte> made = make();
  keep(key, made);
  return made;
}

}  // namespace kiln::compile
