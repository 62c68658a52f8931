#include "device/cuda/cuda_backend.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>

#include "base/build_info.h"
#include "base/error.h"
#include "device/cuda/cuda_check.h"
#include "device/cuda/cuda_handles.h"
#include "device/cuda/lt_matmul.h"
#include "device/gpu_code.h"
#include "device/gpu_info.h"

namespace kiln {
namespace {

cudaStream_t raw(Stream s) { return static_cast<cudaStream_t>(s.handle); }
cudaEvent_t raw(Event e) { return static_cast<cudaEvent_t>(e.handle); }

class CudaTimingEvent final : public TimingEvent {
 public:
  CudaTimingEvent() { KILN_CUDA_CHECK(cudaEventCreate(event_.out())); }

  // While a graph is captured the mark becomes a node of it, which every replay passes: an ordinary record
  // would only order the capture, and leave no time.
  void record(Stream stream) override {
    cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
    KILN_CUDA_CHECK(cudaStreamIsCapturing(raw(stream), &capturing));
    const unsigned flags =
        capturing == cudaStreamCaptureStatusActive ? cudaEventRecordExternal : cudaEventRecordDefault;
    KILN_CUDA_CHECK(cudaEventRecordWithFlags(event_.get(), raw(stream), flags));
  }
  double elapsed_ms(const TimingEvent& earlier) const override {
    KILN_CUDA_CHECK(cudaEventSynchronize(event_.get()));
    float ms = 0;
    KILN_CUDA_CHECK(
        cudaEventElapsedTime(&ms, dynamic_cast<const CudaTimingEvent&>(earlier).event_.get(), event_.get()));
    return static_cast<double>(ms);
  }

 private:
  CudaEvent event_;
};

// On a thread of the driver's; it may call nothing of CUDA's.
void CUDART_CB sleep_microseconds(void* count) {
  std::this_thread::sleep_for(std::chrono::microseconds(reinterpret_cast<std::intptr_t>(count)));
}

class CapturedGraph final : public DeviceGraph {
 public:
  CapturedGraph(const CudaBackend& backend, CudaGraphExec exec) : backend_(backend), exec_(std::move(exec)) {}

  void launch(Stream stream) override {
    backend_.activate();
    KILN_CUDA_CHECK(cudaGraphLaunch(exec_.get(), raw(stream)));
  }

 private:
  const CudaBackend& backend_;
  CudaGraphExec exec_;
};

}  // namespace

CudaBackend::CudaBackend(int index, int compute_capability, bool matmuls)
    : index_(index), compute_capability_(compute_capability) {
  KILN_CUDA_CHECK(cudaSetDevice(index_));  // starts CUDA on it
  if (matmuls) matmuls_ = std::make_unique<LtMatmuls>();
}

CudaBackend::~CudaBackend() = default;

void CudaBackend::activate() const {
  int current = -1;
  KILN_CUDA_CHECK(cudaGetDevice(&current));
  if (current != index_) KILN_CUDA_CHECK(cudaSetDevice(index_));
}

void* CudaBackend::allocate(std::size_t bytes) {
  activate();
  void* p = nullptr;
  const cudaError_t error = cudaMalloc(&p, std::max<std::size_t>(bytes, 1));
  if (error == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();  // the caller frees something and asks again
    return nullptr;
  }
  check_cuda(error, "cudaMalloc");
  return p;
}

std::optional<std::size_t> CudaBackend::free_bytes() const {
  std::size_t free = 0, total = 0;
  if (cudaSetDevice(index_) == cudaSuccess && cudaMemGetInfo(&free, &total) == cudaSuccess) return free;
  (void)cudaGetLastError();  // asked for the sake of a message about something worse
  return {};
}

// Releasing and destroying happen in destructors, where a failure could only hide the error that came before.
void CudaBackend::release(void* ptr) {
  if (cudaFree(ptr) != cudaSuccess) (void)cudaGetLastError();
}

void* CudaBackend::allocate_pinned(std::size_t bytes) {
  activate();
  void* p = nullptr;
  KILN_CUDA_CHECK(cudaHostAlloc(&p, std::max<std::size_t>(bytes, 1), cudaHostAllocPortable));
  return p;
}

void CudaBackend::release_pinned(void* ptr) {
  if (cudaFreeHost(ptr) != cudaSuccess) (void)cudaGetLastError();
}

void CudaBackend::copy_within(void* dst, const void* src, std::size_t bytes, Stream stream) {
  if (bytes == 0) return;
  activate();
  KILN_CUDA_CHECK(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToDevice, raw(stream)));
}

void CudaBackend::copy_rows(void* dst, std::size_t dst_pitch, const void* src, std::size_t src_pitch,
                            std::size_t bytes, std::size_t rows, Stream stream) {
  if (bytes == 0 || rows == 0) return;
  activate();
  KILN_CUDA_CHECK(
      cudaMemcpy2DAsync(dst, dst_pitch, src, src_pitch, bytes, rows, cudaMemcpyDeviceToDevice, raw(stream)));
}

void CudaBackend::copy_to_device(void* dst, const void* host, std::size_t bytes, Stream stream) {
  if (bytes == 0) return;
  activate();
  KILN_CUDA_CHECK(cudaMemcpyAsync(dst, host, bytes, cudaMemcpyHostToDevice, raw(stream)));
}

void CudaBackend::copy_to_host(void* host, const void* src, std::size_t bytes, Stream stream) {
  if (bytes == 0) return;
  activate();
  KILN_CUDA_CHECK(cudaMemcpyAsync(host, src, bytes, cudaMemcpyDeviceToHost, raw(stream)));
}

void CudaBackend::zero(void* dst, std::size_t bytes, Stream stream) {
  if (bytes == 0) return;
  activate();
  KILN_CUDA_CHECK(cudaMemsetAsync(dst, 0, bytes, raw(stream)));
}

// Non-blocking: an ordinary stream would wait for whatever anybody puts on the default one.
Stream CudaBackend::make_stream() {
  activate();
  cudaStream_t s = nullptr;
  KILN_CUDA_CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  return {s};
}

void CudaBackend::destroy(Stream stream) {
  if (cudaStreamDestroy(raw(stream)) != cudaSuccess) (void)cudaGetLastError();
}

Event CudaBackend::make_event() {
  activate();
  cudaEvent_t e = nullptr;
  KILN_CUDA_CHECK(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
  return {e};
}

void CudaBackend::destroy(Event event) {
  if (cudaEventDestroy(raw(event)) != cudaSuccess) (void)cudaGetLastError();
}

// Buffers and contexts record, wait and synchronise as they are destroyed. After a fault of the GPU each of
// these would fail again; the fault is told once, so that the first report reaches the user.
void CudaBackend::check_once(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  if (is_device_lost(error)) {
    const bool told = lost_.exchange(true) || std::uncaught_exceptions() > 0;
    if (told) return;
  }
  throw_cuda_error(error, call);
}

void CudaBackend::record(Event event, Stream stream) {
  check_once(cudaEventRecord(raw(event), raw(stream)), "cudaEventRecord");
}

void CudaBackend::wait(Stream stream, Event event) {
  check_once(cudaStreamWaitEvent(raw(stream), raw(event), 0), "cudaStreamWaitEvent");
}

bool CudaBackend::passed(Event event) {
  const cudaError_t error = cudaEventQuery(raw(event));
  if (error == cudaErrorNotReady) {
    (void)cudaGetLastError();  // no error, but kept like one
    return false;
  }
  check_once(error, "cudaEventQuery");
  return true;
}

void CudaBackend::synchronize(Event event) {
  check_once(cudaEventSynchronize(raw(event)), "cudaEventSynchronize");
}

void CudaBackend::synchronize(Stream stream) {
  check_once(cudaStreamSynchronize(raw(stream)), "cudaStreamSynchronize");
}

std::unique_ptr<TimingEvent> CudaBackend::make_timing_event() {
  activate();
  return std::make_unique<CudaTimingEvent>();
}

// By time and not until the host says so: the queue of a stream holds some thousand entries, and a host that
// waits for room in it could not say so any more.
void CudaBackend::hold(Stream stream, double seconds) {
  activate();
  const auto microseconds = static_cast<std::intptr_t>(1e6 * seconds);
  void* count = reinterpret_cast<void*>(microseconds);  // NOLINT(performance-no-int-to-ptr): only carried
  KILN_CUDA_CHECK(cudaLaunchHostFunc(raw(stream), sleep_microseconds, count));
}

// Relaxed: `work` may take memory from the device, which the stricter modes forbid.
std::unique_ptr<DeviceGraph> CudaBackend::capture(Stream stream, const std::function<void()>& work) {
  activate();
  KILN_CUDA_CHECK(cudaStreamBeginCapture(raw(stream), cudaStreamCaptureModeRelaxed));
  CudaGraph graph;
  try {
    work();
  } catch (...) {
    // The stream must leave capture, or everything after would fail; what was recorded so far is dropped.
    if (cudaStreamEndCapture(raw(stream), graph.out()) != cudaSuccess) (void)cudaGetLastError();
    throw;
  }
  KILN_CUDA_CHECK(cudaStreamEndCapture(raw(stream), graph.out()));
  CudaGraphExec exec;
  KILN_CUDA_CHECK(cudaGraphInstantiate(exec.out(), graph.get(), 0));
  return std::make_unique<CapturedGraph>(*this, std::move(exec));
}

std::vector<MatmulChoice> CudaBackend::tune_matmuls(const TuneProgress& progress) {
  activate();
  return matmuls_->tune(progress);
}

void CudaBackend::use_matmuls(std::span<const MatmulChoice> choices) { matmuls_->use(choices); }

std::unique_ptr<Backend> make_cuda_backend(int index, bool matmuls) {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
    (void)cudaGetLastError();
    std::string why;
    (void)list_gpus(&why);
    throw Error(cat("cuda:", index, " is not available: ", why),
                "`kiln doctor` says more; --device cpu and meta work without a GPU", ErrorKind::unavailable);
  }
  if (index < 0 || index >= count) {
    throw Error(cat("cuda:", index, " is not available: this machine has ", count,
                    count == 1 ? " GPU" : " GPUs", ", counted from cuda:0"),
                {}, ErrorKind::unavailable);
  }
  int major = 0, minor = 0;
  KILN_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index));
  KILN_CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index));
  const char* archs = build_info().cuda_archs;
  if (gpu_code_for(archs, major, minor) == GpuCode::none) {
    throw Error(cat("cuda:", index, " is sm_", major, minor, ", and this build holds code for ", archs),
                how_to_build_for(major, minor), ErrorKind::unavailable);
  }
  return std::make_unique<CudaBackend>(index, 10 * major + minor, matmuls);
}

}  // namespace kiln
