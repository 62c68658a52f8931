#include "dist/comm/thread_group.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <system_error>

namespace kiln {

ThreadGroup::ThreadGroup(int world, std::chrono::milliseconds timeout)
    : timeout_(timeout), arriving_(world), posts_(world), here_(world, false), reading_(world, false) {}

void ThreadGroup::meet(int rank, const CommPost& post, bool opens) {
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
    reading_.assign(reading_.size(), opens && disagreement().empty());
    changed_.notify_all();
  } else {
    const bool in_time =
        changed_.wait_for(lock, timeout_, [&] { return round_ != mine || !failure_.empty(); });
    if (!in_time) {
      fail(rank, cat("[", post.collective, "] rank ", rank, " waited ", timeout_.count(), " ms; ",
                     opens ? "missing: " : "not done: ", missing_ranks()));
    }
    if (round_ == mine) throw Error(failure_);
  }
  if (const std::string d = disagreement(); !d.empty())
    throw Error(d, "every rank must call the same collectives in the same order");
}

std::string ThreadGroup::disagreement() const {
  auto text = [](const CommPost& p) {
    return cat(p.collective, " of ", p.count, " ", name_of(p.dtype),
               p.subject.empty() ? "" : cat(" (", p.subject, ")"));
  };
  for (int r = 1; r < world(); ++r) {
    const CommPost &a = posts_[0], &b = posts_[r];
    if (std::strcmp(a.collective, b.collective) == 0 && a.subject == b.subject && a.count == b.count &&
        a.dtype == b.dtype)
      continue;
    return cat("ranks disagree: rank 0 calls ", text(a), ", rank ", r, " calls ", text(b));
  }
  return {};
}

std::string ThreadGroup::missing_ranks() const {
  std::string s;
  for (int r = 0; r < world(); ++r) {
    if (!here_[r]) s += cat(s.empty() ? "rank " : ", rank ", r);
  }
  return s;
}

void ThreadGroup::fail(int rank, const std::string& message) {
  if (failure_.empty()) {
    failure_ = message;
    failed_rank_ = rank;
  }
  changed_.notify_all();
}

void ThreadGroup::abort(int rank, const std::string& why) {
  std::lock_guard lock(mutex_);
  fail(rank, cat("rank ", rank, " failed: ", why));
}

void ThreadGroup::abandon(int rank, const std::string& why) {
  std::unique_lock lock(mutex_);
  reading_[rank] = false;
  fail(rank, cat("rank ", rank, " failed: ", why));
  changed_.wait(lock, [&] { return std::find(reading_.begin(), reading_.end(), true) == reading_.end(); });
}

void run_thread_ranks(int world, const RankOptions& options,
                      const std::function<void(RankContext&, Communicator&)>& body,
                      std::chrono::milliseconds timeout, const StartThread& start) {
  if (world < 1) throw Error(cat("a run needs at least one rank, got ", world));
  ThreadGroup group(world, timeout);
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(world));
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
      group.close(rank, last);  // nobody frees memory that another rank may still read
    } catch (const std::exception& e) {
      errors[rank] = std::current_exception();
      group.abort(rank, e.what());
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(world));
  for (int r = 0; r < world; ++r) {
    try {
      auto work = [&rank_main, r] { rank_main(r); };
      threads.push_back(start ? start(work) : std::thread(work));
    } catch (const std::system_error& e) {  // those that run would wait for it, and then be joined by nobody
      errors[r] = std::make_exception_ptr(
          Error(cat("the thread of rank ", r, " of ", world, " did not start: ", e.what()),
                "use fewer ranks, or allow this user more processes and memory (ulimit -u, ulimit -v)"));
      group.abort(r, "its thread did not start");
      break;
    }
  }
  for (std::thread& t : threads) t.join();
  // The first failure and not what the others made of it.
  if (group.failed_rank() >= 0) std::rethrow_exception(errors[group.failed_rank()]);
}

}  // namespace kiln
