#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>

#include "base/error.h"

namespace kiln {

struct ThreadPool::Job {
  ChunkFn f;
  int64_t count, grain;
  std::atomic<int64_t> next{0};
  int active = 0;            // workers inside run_chunks; guarded by the pool's mutex
  std::exception_ptr error;  // guarded by the pool's mutex
};

ThreadPool::ThreadPool(int threads) {
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { work(); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& w : workers_) w.join();
}

void ThreadPool::parallel_for(int64_t count, int64_t grain, ChunkFn f) {
  if (grain <= 0) throw Error(cat("parallel_for needs a grain of at least 1, got ", grain));
  if (count <= 0) return;
  if (workers_.empty() || count <= grain) {
    // Same chunk bounds as with helpers: a kernel may keep per-chunk partial sums.
    for (int64_t b = 0; b < count; b += grain) f(b, std::min(count, b + grain));
    return;
  }
  Job job{f, count, grain, {}, 0, nullptr};
  {
    std::lock_guard lock(mutex_);
    job_ = &job;
    ++generation_;
  }
  wake_.notify_all();
  run_chunks(job);
  std::unique_lock lock(mutex_);
  job_ = nullptr;  // a worker that has not woken yet finds nothing; those inside finish first
  done_.wait(lock, [&] { return job.active == 0; });
  if (job.error) std::rethrow_exception(job.error);
}

void ThreadPool::run_chunks(Job& job) {
  try {
    for (;;) {
      const int64_t begin = job.next.fetch_add(job.grain, std::memory_order_relaxed);
      if (begin >= job.count) return;
      job.f(begin, std::min(job.count, begin + job.grain));
    }
  } catch (...) {
    std::lock_guard lock(mutex_);
    if (!job.error) job.error = std::current_exception();
    job.next.store(job.count, std::memory_order_relaxed);
  }
}

void ThreadPool::work() {
  uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return stopping_ || generation_ != seen; });
    if (stopping_) return;
    seen = generation_;
    Job* job = job_;
    if (job == nullptr) continue;
    ++job->active;
    lock.unlock();
    run_chunks(*job);
    lock.lock();
    if (--job->active == 0) done_.notify_one();
  }
}

int ThreadPool::available_threads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

}  // namespace kiln
