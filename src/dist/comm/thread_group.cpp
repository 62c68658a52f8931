#include "dist/comm/thread_group.h"

#include <cstring>
#include <exception>
#include <thread>

namespace kiln {

ThreadGroup::ThreadGroup(int world, std::chrono::milliseconds timeout)
    : timeout_(timeout), arriving_(world), posts_(world), here_(world, false) {}

void ThreadGroup::meet(int rank, const CommPost& post) {
  std::unique_lock lock(mutex_);
  if (!failure_.empty()) throw Error(failure_);
  arriving_[rank] = post;
  here_[rank] = true;
  const uint64_t mine = round_;
  if (++count_ == world()) {
    posts_ = arriving_;
    here_.assign(here_.size(), false);
    count_ = 0;
    ++round_;
    changed_.notify_all();
  } else {
    const bool in_time =
        changed_.wait_for(lock, timeout_, [&] { return round_ != mine || !failure_.empty(); });
    if (round_ == mine && failure_.empty() && !in_time) {
      failure_ = cat("[", post.collective, "] rank ", rank, " waited ", timeout_.count(),
                     " ms; missing: ", missing_ranks());
      changed_.notify_all();
    }
    if (round_ == mine) throw Error(failure_);
  }
  check_agreement();
}

void ThreadGroup::check_agreement() const {
  for (int r = 1; r < world(); ++r) {
    const CommPost &a = posts_[0], &b = posts_[r];
    if (std::strcmp(a.collective, b.collective) == 0 && a.count == b.count && a.dtype == b.dtype) continue;
    throw Error(cat("ranks disagree: rank 0 calls ", a.collective, " of ", a.count, " ", name_of(a.dtype),
                    ", rank ", r, " calls ", b.collective, " of ", b.count, " ", name_of(b.dtype)),
                "every rank must call the same collectives in the same order");
  }
}

std::string ThreadGroup::missing_ranks() const {
  std::string s;
  for (int r = 0; r < world(); ++r) {
    if (!here_[r]) s += cat(s.empty() ? "rank " : ", rank ", r);
  }
  return s;
}

void ThreadGroup::abort(int rank, const std::string& why) {
  std::lock_guard lock(mutex_);
  if (failure_.empty()) failure_ = cat("rank ", rank, " failed: ", why);
  changed_.notify_all();
}

void run_thread_ranks(int world, const RankOptions& options,
                      const std::function<void(RankContext&, Communicator&)>& body,
                      std::chrono::milliseconds timeout) {
  if (world < 1) throw Error(cat("a run needs at least one rank, got ", world));
  ThreadGroup group(world, timeout);
  std::mutex mutex;
  std::exception_ptr first;
  auto rank_main = [&](int rank) {
    try {
      RankOptions mine = options;
      mine.rank = rank;
      mine.world = world;
      RankContext ctx(mine);
      const auto comm = make_thread_communicator(ctx, group);
      body(ctx, *comm);
      ctx.synchronize();
      CommPost last;
      last.collective = "finish";
      group.meet(rank, last);  // nobody frees memory that another rank may still read
    } catch (const std::exception& e) {
      {
        std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
      }
      group.abort(rank, e.what());
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(world));
  for (int r = 0; r < world; ++r) threads.emplace_back(rank_main, r);
  for (std::thread& t : threads) t.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace kiln
