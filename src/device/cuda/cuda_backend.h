// One rank's view of one GPU. Ranks that share a GPU share its memory and nothing else: each has its own
// backend, streams, cuBLASLt handle and remembered matrix-product algorithms.
#pragma once

#include <driver_types.h>

#include <atomic>

#include "device/backend.h"

namespace kiln {

class LtMatmuls;

class CudaBackend final : public Backend {
 public:
  CudaBackend(int index, int compute_capability, bool matmuls);
  ~CudaBackend() override;

  // CUDA keeps the current device per thread; every entry into this backend makes it ours.
  void activate() const;
  LtMatmuls& matmuls() { return *matmuls_; }

  DeviceTraits traits() const override { return {DeviceType::cuda, compute_capability_}; }
  bool host_readable() const override { return false; }

  void* allocate(std::size_t bytes) override;
  std::optional<std::size_t> free_bytes() const override;
  void release(void* ptr) override;
  void* allocate_pinned(std::size_t bytes) override;
  void release_pinned(void* ptr) override;

  void copy_within(void* dst, const void* src, std::size_t bytes, Stream stream) override;
  void copy_rows(void* dst, std::size_t dst_pitch, const void* src, std::size_t src_pitch, std::size_t bytes,
                 std::size_t rows, Stream stream) override;
  void copy_to_device(void* dst, const void* host, std::size_t bytes, Stream stream) override;
  void copy_to_host(void* host, const void* src, std::size_t bytes, Stream stream) override;
  void zero(void* dst, std::size_t bytes, Stream stream) override;

  Stream make_stream() override;
  void destroy(Stream stream) override;
  Event make_event() override;
  void destroy(Event event) override;
  void record(Event event, Stream stream) override;
  void wait(Stream stream, Event event) override;
  bool passed(Event event);  // asks, waits for nothing
  void synchronize(Event event) override;
  void synchronize(Stream stream) override;
  std::unique_ptr<TimingEvent> make_timing_event() override;
  void hold(Stream stream, double seconds) override;

  bool can_capture() const override { return true; }
  std::unique_ptr<DeviceGraph> capture(Stream stream, const std::function<void()>& work) override;

  std::vector<MatmulChoice> tune_matmuls(const TuneProgress& progress) override;
  void use_matmuls(std::span<const MatmulChoice> choices) override;

 private:
  void check_once(cudaError_t error, const char* call);

  int index_;
  int compute_capability_;
  std::atomic<bool> lost_{false};       // a fault of the GPU has been reported, by this or another thread
  std::unique_ptr<LtMatmuls> matmuls_;  // null where none were asked for
};

}  // namespace kiln
