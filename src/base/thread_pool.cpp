#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <system_error>

#include "base/error.h"
#include "base/kernel_log.h"

namespace kiln {

namespace {

// Waits for something that should come soon without going to sleep: first a short busy wait, as the next op
// of a step follows within microseconds; then one that lets any other thread have the core.
template <class Condition>
void wait_awake(const Condition& holds) {
  constexpr int kPauses = 1000;
  constexpr std::chrono::microseconds kPatience{500};
  for (int i = 0; i < kPauses; ++i) {
    if (holds()) return;
    __builtin_ia32_pause();
  }
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!holds() && std::chrono::steady_clock::now() < end) sched_yield();
}

}  // namespace

struct ThreadPool::Job {
  ChunkFn f;
  int64_t count, grain;
  std::atomic<int64_t> next{0};
  std::atomic<int> active{0};  // workers inside run_chunks; changed under the pool's mutex
  std::exception_ptr error;    // guarded by the pool's mutex
};

struct ThreadPool::Scratch {
  std::byte* data = nullptr;
  std::size_t size = 0;
  Scratch() = default;
  ~Scratch() { std::free(data); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
};

ThreadPool::ThreadPool(int threads) : cpu_(static_cast<std::size_t>(std::max(1, threads))) {
  for (int i = 0; i < std::max(1, threads); ++i) scratch_.push_back(std::make_unique<Scratch>());
  workers_.reserve(cpu_.size());
  try {  // those that did start must end before their pool does
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(static_cast<std::size_t>(i)); });
  } catch (const std::system_error& e) {
    const std::size_t started = workers_.size() + 1;
    stop();
    throw Error(cat("only ", started, " of ", threads, " threads could be started: ", e.what(),
                    "; use fewer, or raise the limit on processes (ulimit -u)"));
  } catch (...) {
    stop();
    throw;
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& w : workers_) w.join();
  workers_.clear();
}

void ThreadPool::parallel_for(int64_t count, int64_t grain, ChunkFn f, std::source_location where) {
  if (grain <= 0) throw Error(cat("parallel_for needs a grain of at least 1, got ", grain));
  if (count <= 0) return;
  if (KernelLog::listening()) KernelLog::note(where);
  if (workers_.empty() || count <= grain) {
    // Same chunk bounds as with helpers: a kernel may keep per-chunk partial sums.
    for (int64_t b = 0; b < count; b += grain) f(b, std::min(count, b + grain));
    return;
  }
  Job job{f, count, grain, {}, {}, nullptr};
  cpu_[0].store(sched_getcpu(), std::memory_order_relaxed);
  {
    std::lock_guard lock(mutex_);
    job_ = &job;
    ++generation_;
  }
  wake_.notify_all();
  run_chunks(job);
  {
    std::lock_guard lock(mutex_);
    job_ = nullptr;  // a worker that has not woken yet finds nothing; those inside finish first
  }
  wait_awake([&] { return job.active == 0; });
  std::unique_lock lock(mutex_);
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

bool ThreadPool::news_since(uint64_t seen) const { return stopping_ || generation_ != seen; }

// A worker is often woken on the core of the thread that woke it, and the scheduler may take many
// milliseconds to separate them (measured: a GEMM of 512^3 at half speed, call after call). So a worker that
// finds itself on the core of a thread before it asks to be elsewhere, once, and is free again.
void ThreadPool::step_aside(std::size_t index) {
  const int here = sched_getcpu();
  cpu_[index].store(here, std::memory_order_relaxed);
  const auto taken =
      std::find_if(cpu_.begin(), cpu_.begin() + static_cast<std::ptrdiff_t>(index),
                   [&](const auto& cpu) { return cpu.load(std::memory_order_relaxed) == here; });
  cpu_set_t all, others;
  if (taken == cpu_.begin() + static_cast<std::ptrdiff_t>(index)) return;
  if (sched_getaffinity(0, sizeof all, &all) != 0) return;
  others = all;
  for (std::size_t i = 0; i < index; ++i) {
    const int cpu = cpu_[i].load(std::memory_order_relaxed);
    if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_CLR(cpu, &others);
  }
  if (CPU_COUNT(&others) == 0 || sched_setaffinity(0, sizeof others, &others) != 0) return;
  cpu_[index].store(sched_getcpu(), std::memory_order_relaxed);
  (void)sched_setaffinity(0, sizeof all, &all);
}

void ThreadPool::work(std::size_t index) {
  uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    lock.unlock();
    wait_awake([&] { return news_since(seen); });
    lock.lock();
    wake_.wait(lock, [&] { return news_since(seen); });
    if (stopping_) return;
    seen = generation_;
    Job* job = job_;
    if (job == nullptr) continue;
    ++job->active;
    lock.unlock();
    step_aside(index);
    run_chunks(*job);
    lock.lock();
    if (--job->active == 0) done_.notify_one();
  }
}

std::byte* ThreadPool::scratch(std::size_t bytes) {
  std::size_t index = 0;  // the thread that called parallel_for
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    if (workers_[i].get_id() == std::this_thread::get_id()) index = i + 1;
  }
  Scratch& s = *scratch_[index];
  if (s.size < bytes) {
    std::free(s.data);
    s.size = (bytes + 63) / 64 * 64;
    s.data = static_cast<std::byte*>(std::aligned_alloc(64, s.size));
    if (s.data == nullptr) {
      s.size = 0;
      throw Error(cat("out of memory on the host: ", bytes, " bytes of a thread's scratch"));
    }
  }
  return s.data;
}

int ThreadPool::available_threads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

}  // namespace kiln
