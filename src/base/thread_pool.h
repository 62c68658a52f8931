// A small thread pool owned by one rank. Work is cut into chunks whose bounds depend on the problem alone,
// never on the number of threads, so results are the same bits for 1, 2 or 64 threads. Own code rather than
// OpenMP: ThreadSanitizer sees every synchronization, and each rank of a process can have its own.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <source_location>
#include <thread>
#include <type_traits>
#include <vector>

namespace kiln {

// A borrowed callable void(begin, end): no allocation, valid while the call that takes it runs.
class ChunkFn {
 public:
  template <class F>
  ChunkFn(const F& f)  // NOLINT(google-explicit-constructor): callers pass lambdas
      : object_(&f), call_([](const void* o, int64_t b, int64_t e) { (*static_cast<const F*>(o))(b, e); }) {}
  void operator()(int64_t begin, int64_t end) const { call_(object_, begin, end); }

 private:
  const void* object_;
  void (*call_)(const void*, int64_t, int64_t);
};

class ThreadPool {
 public:
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls f(begin, end) over [0, count) in chunks of `grain`; returns when all are done. The first exception
  // thrown by a chunk is rethrown here. A chunk must not call parallel_for itself.
  // `where`: the kernel whose work this is (base/kernel_log.h).
  void parallel_for(int64_t count, int64_t grain, ChunkFn f,
                    std::source_location where = std::source_location::current());

  // Scratch of at least `bytes`, 64-byte aligned, private to the calling chunk's thread and kept for the next
  // call: packing buffers of a few hundred KiB would otherwise be mapped and faulted in by every task.
  // Only inside a chunk; contents do not survive it.
  std::byte* scratch(std::size_t bytes);

  // The number of threads this process may use: its CPU affinity, at least 1.
  static int available_threads();

 private:
  struct Job;
  struct Scratch;
  void work(std::size_t index);
  void stop();
  void step_aside(std::size_t index);
  bool news_since(uint64_t seen) const;
  void run_chunks(Job& job);

  std::mutex mutex_;
  std::condition_variable wake_, done_;
  Job* job_ = nullptr;                   // guarded by the mutex
  std::atomic<uint64_t> generation_{0};  // written under the mutex; atomic for those who wait without it
  std::atomic<bool> stopping_{false};
  std::vector<std::unique_ptr<Scratch>> scratch_;  // one per thread; the caller's is the first
  std::vector<std::atomic<int>> cpu_;              // where each thread last ran
  std::vector<std::thread> workers_;
};

}  // namespace kiln
