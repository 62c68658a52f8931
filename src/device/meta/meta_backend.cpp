// The device that has no data: addresses are handed out from a counter and never dereferenced.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "base/units.h"
#include "device/host_backend.h"

namespace kiln {
namespace {

class MetaBackend final : public HostBackend {
 public:
  MetaBackend(DeviceType target, CpuIsa isa, int compute_capability)
      : target_(target), isa_(isa), compute_capability_(compute_capability) {}

  DeviceTraits traits() const override {
    return {target_, target_ == DeviceType::cuda ? compute_capability_ : 0, isa_};
  }
  bool host_readable() const override { return false; }

  void* allocate(std::size_t bytes) override {
    void* p = reinterpret_cast<void*>(next_);  // NOLINT(performance-no-int-to-ptr): never dereferenced
    next_ += round_up(bytes, 512) + 512;
    return p;
  }
  void release(void*) override {}
  void* allocate_pinned(std::size_t bytes) override {
    return std::calloc(1, bytes);
  }  // the host side is real
  void release_pinned(void* ptr) override { std::free(ptr); }

  void copy_within(void*, const void*, std::size_t, Stream) override {}
  void copy_to_device(void*, const void*, std::size_t, Stream) override {}
  void copy_to_host(void* host, const void*, std::size_t bytes, Stream) override {
    std::memset(host, 0, bytes);
  }
  void zero(void*, std::size_t, Stream) override {}

 private:
  DeviceType target_;
  CpuIsa isa_;
  int compute_capability_;
  std::uintptr_t next_ = std::uintptr_t{1} << 44;
};

}  // namespace

std::unique_ptr<Backend> make_meta_backend(DeviceType target, std::optional<CpuIsa> isa,
                                           int compute_capability) {
  return std::make_unique<MetaBackend>(target, isa ? *isa : cpu_isa_from_environment(), compute_capability);
}

}  // namespace kiln
