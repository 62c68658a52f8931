#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "base/units.h"
#include "device/host_backend.h"

namespace kiln {
namespace {

// Large blocks ask for pages of 2 MiB: one fault and one entry in the TLB instead of 512 each.
constexpr std::size_t kHugePage = std::size_t{2} << 20;

class CpuBackend final : public HostBackend {
 public:
  explicit CpuBackend(CpuIsa isa) : isa_(isa) {}

  DeviceTraits traits() const override { return {DeviceType::cpu, 0, isa_}; }
  bool host_readable() const override { return true; }

  void* allocate(std::size_t bytes) override {
    void* p = nullptr;
    const bool large = bytes >= 2 * kHugePage;
    // posix_memalign keeps the exact size, so a sanitizer sees the first byte past the end.
    if (posix_memalign(&p, large ? kHugePage : 64, bytes) != 0) return nullptr;
    if (large)
      (void)madvise(p, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);  // a wish: no matter if refused
    return p;
  }
  void release(void* ptr) override { std::free(ptr); }
  void* allocate_pinned(std::size_t bytes) override { return allocate(bytes); }
  void release_pinned(void* ptr) override { release(ptr); }

  void copy_within(void* dst, const void* src, std::size_t bytes, Stream) override {
    std::memcpy(dst, src, bytes);
  }
  void copy_to_device(void* dst, const void* src, std::size_t bytes, Stream) override {
    std::memcpy(dst, src, bytes);
  }
  void copy_to_host(void* dst, const void* src, std::size_t bytes, Stream) override {
    std::memcpy(dst, src, bytes);
  }
  void zero(void* dst, std::size_t bytes, Stream) override { std::memset(dst, 0, bytes); }

 private:
  CpuIsa isa_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(std::optional<CpuIsa> isa) {
  return std::make_unique<CpuBackend>(isa ? checked_cpu_isa(*isa) : cpu_isa_from_environment());
}

}  // namespace kiln
