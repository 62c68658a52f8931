// One bug for each tool of compute-sanitizer, planted so that tests/gpu/sanitize.sh can tell a clean report
// from a tool that sees nothing. Each bug is harmless by itself: without its tool the program exits normally.
//
//   usage: planted_bugs memcheck | racecheck | initcheck | synccheck
#include <cstdio>
#include <functional>
#include <map>
#include <string>

#include "base/error.h"
#include "device/cuda/cuda_check.h"
#include "device/cuda/launch.h"

namespace kiln {
namespace {

constexpr int kThreads = 64;  // two warps: a race within one could be hidden by its lockstep

// One element past the end, in the slack that every allocation has.
__global__ void planted_write_past_the_end(float* out, int n) {
  if (threadIdx.x == 0) out[n] = 1;
}

// Reads what a thread of the other warp writes, with no barrier between.
__global__ void planted_race(float* out) {
  __shared__ float values[kThreads];
  values[threadIdx.x] = static_cast<float>(threadIdx.x);
  out[threadIdx.x] = values[kThreads - 1 - threadIdx.x];
}

// Copies unwritten memory.
__global__ void planted_unwritten_read(float* out, const float* in) { out[threadIdx.x] = in[threadIdx.x]; }

// A barrier for the first sixteen lanes of a warp, which a seventeenth takes part in. (A block's barrier that
// some threads go around is no bug to the tool since threads that have left are not waited for, and one whose
// threads stay would hang the tool as well.)
__global__ void planted_barrier_of_others(float* out) {
  const unsigned mask = __ballot_sync(0xffffffffu, threadIdx.x % 32 < 16);
  if (threadIdx.x % 32 <= 16) __syncwarp(mask);
  out[threadIdx.x] = 1;
}

class DeviceFloats {
 public:
  explicit DeviceFloats(int n) {
    KILN_CUDA_CHECK(cudaMalloc(&data_, static_cast<std::size_t>(n) * sizeof(float)));
  }
  ~DeviceFloats() { (void)cudaFree(data_); }
  DeviceFloats(const DeviceFloats&) = delete;
  DeviceFloats& operator=(const DeviceFloats&) = delete;
  float* get() const { return data_; }

 private:
  float* data_ = nullptr;
};

void plant(const std::string& tool, Stream stream) {
  constexpr int kOdd = 101;  // ends inside the 512 bytes that cudaMalloc rounds to
  const DeviceFloats out(kOdd), unwritten(kOdd);
  const std::map<std::string, std::function<void()>> bugs = {
      {"memcheck",
       [&] { launch(planted_write_past_the_end, {1}, dim3(kThreads), 0, stream, out.get(), kOdd); }},
      {"racecheck", [&] { launch(planted_race, {1}, dim3(kThreads), 0, stream, out.get()); }},
      {"initcheck",
       [&] {
         launch(planted_unwritten_read, {1}, dim3(kThreads), 0, stream, out.get(),
                static_cast<const float*>(unwritten.get()));
       }},
      {"synccheck", [&] { launch(planted_barrier_of_others, {1}, dim3(kThreads), 0, stream, out.get()); }},
  };
  bugs.at(tool)();
  KILN_CUDA_CHECK(cudaStreamSynchronize(static_cast<cudaStream_t>(stream.handle)));
}

int run(const std::string& tool) {
  try {
    cudaStream_t stream = nullptr;
    KILN_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    plant(tool, {stream});
    KILN_CUDA_CHECK(cudaStreamDestroy(stream));
  } catch (const Error& error) {  // a tool may stop the kernel: whether it found the bug, its report says
    std::fprintf(stderr, "planted_bugs: %s\n", error.what());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace kiln

int main(int argc, char** argv) {
  const std::string tool = argc == 2 ? argv[1] : "";
  for (const char* known : {"memcheck", "racecheck", "initcheck", "synccheck"}) {
    if (tool == known) return kiln::run(tool);
  }
  std::fprintf(stderr, "usage: planted_bugs memcheck | racecheck | initcheck | synccheck\n");
  return 2;
}
