// The device layer's one interface: raw memory, copies, streams, events and captured graphs of one device.
// Each rank owns a backend, so nothing here is shared between ranks. The CPU and meta implement streams and
// events as no-ops, since their work is done when the call returns.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "device/device.h"
#include "tune/matmul_choice.h"

namespace kiln {

struct Stream {
  void* handle = nullptr;  // cudaStream_t on CUDA
  friend bool operator==(Stream, Stream) = default;
};

struct Event {
  void* handle = nullptr;  // cudaEvent_t on CUDA
};

// A place on a stream that knows when the device passed it.
class TimingEvent {
 public:
  virtual ~TimingEvent() = default;
  virtual void record(Stream stream) = 0;
  // The host waits until the device has passed both, which were recorded by the same backend.
  virtual double elapsed_ms(const TimingEvent& earlier) const = 0;
};

// A captured sequence of device work that can be replayed.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  virtual void launch(Stream stream) = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual DeviceTraits traits() const = 0;
  virtual bool host_readable() const = 0;  // may the host dereference its memory?

  virtual void* allocate(std::size_t bytes) = 0;  // null when the device is out of memory
  // Free memory, other processes counted; nothing where the device does not count it.
  virtual std::optional<std::size_t> free_bytes() const { return {}; }
  virtual void release(void* ptr) = 0;
  virtual void* allocate_pinned(
      std::size_t bytes) = 0;  // host memory the device can copy from asynchronously
  virtual void release_pinned(void* ptr) = 0;

  // Ordered on `stream`; pinned host memory is needed for the host side to stay asynchronous.
  virtual void copy_within(void* dst, const void* src, std::size_t bytes, Stream stream) = 0;
  virtual void copy_to_device(void* dst, const void* host, std::size_t bytes, Stream stream) = 0;
  virtual void copy_to_host(void* host, const void* src, std::size_t bytes, Stream stream) = 0;
  virtual void zero(void* dst, std::size_t bytes, Stream stream) = 0;
  // `rows` rows of `bytes` each; a pitch is the distance in bytes from one row to the next.
  virtual void copy_rows(void* dst, std::size_t dst_pitch, const void* src, std::size_t src_pitch,
                         std::size_t bytes, std::size_t rows, Stream stream) {
    for (std::size_t i = 0; i < rows; ++i) {
      copy_within(static_cast<std::byte*>(dst) + i * dst_pitch,
                  static_cast<const std::byte*>(src) + i * src_pitch, bytes, stream);
    }
  }

  virtual Stream make_stream() = 0;
  virtual void destroy(Stream stream) = 0;
  virtual Event make_event() = 0;
  virtual void destroy(Event event) = 0;
  virtual void record(Event event, Stream stream) = 0;
  virtual void wait(Stream stream, Event event) = 0;  // later work on `stream` follows `event`
  virtual void synchronize(Event event) = 0;          // the host waits
  virtual void synchronize(Stream stream) = 0;
  virtual std::unique_ptr<TimingEvent> make_timing_event() = 0;
  // `stream` does nothing for about so long, so that the host can queue work ahead of it: what is timed then
  // never waits to be launched. Nothing where calls return when their work is done.
  virtual void hold(Stream stream, double seconds) = 0;

  virtual bool can_capture() const = 0;
  // Runs `work` once with its device calls recorded instead of executed.
  virtual std::unique_ptr<DeviceGraph> capture(Stream stream, const std::function<void()>& work) = 0;

  // Where a library does the matmuls: measures its algorithms for every problem seen so far and takes the
  // fastest, or takes those of an earlier measurement. Elsewhere there is nothing to choose.
  virtual std::vector<MatmulChoice> tune_matmuls(const TuneProgress& /*progress*/) { return {}; }
  virtual void use_matmuls(std::span<const MatmulChoice> /*choices*/) {}
};

// The instruction set is KILN_CPU_ISA's, or the best there is, unless given.
std::unique_ptr<Backend> make_cpu_backend(std::optional<CpuIsa> isa = {});
// Of GPUs it imitates by default the architecture the fast kernels are written for.
std::unique_ptr<Backend> make_meta_backend(DeviceType target, std::optional<CpuIsa> isa = {},
                                           int compute_capability = 90);
// Throws Error(unavailable) with the reason where there is no CUDA build, driver or GPU of that index.
// Without matmuls it has no use for cuBLASLt and does not load it.
std::unique_ptr<Backend> make_cuda_backend(int index, bool matmuls = true);

inline std::unique_ptr<Backend> make_backend(const Device& d, std::optional<CpuIsa> isa = {},
                                             int meta_compute_capability = 90, bool matmuls = true) {
  if (d.type == DeviceType::cuda) return make_cuda_backend(d.index, matmuls);
  if (d.type == DeviceType::meta) return make_meta_backend(d.target, isa, meta_compute_capability);
  return make_cpu_backend(isa);
}

}  // namespace kiln
