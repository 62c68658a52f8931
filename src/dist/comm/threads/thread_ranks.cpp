#include <exception>
#include <system_error>

#include "dist/comm/local_transport.h"
#include "dist/comm/threads/thread_group.h"

namespace kiln {
namespace {

std::thread start_rank(int rank, int world, const std::function<void()>& work, const StartThread& start) {
  try {
    return start ? start(work) : std::thread(work);
  } catch (const std::system_error& e) {
    throw Error(cat("the thread of rank ", rank, " of ", world, " did not start: ", e.what()),
                "use fewer ranks, or allow this user more processes and memory (ulimit -u, ulimit -v)");
  }
}

}  // namespace

void run_thread_ranks(int world, const RankOptions& options,
                      const std::function<void(RankContext&, Communicator&)>& body, const CommOptions& comm,
                      const StartThread& start) {
  if (world < 1) throw Error(cat("a run needs at least one rank, got ", world));
  const auto group = std::make_shared<ThreadGroup>(world, comm.timeout);
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(world));
  auto rank_main = [&](int rank) {
    try {
      RankOptions mine = options;
      mine.rank = rank;
      mine.world = world;
      RankContext ctx(mine);
      Communicator ranks(ctx,
                         ctx.device().is_meta() ? make_meta_transport(rank, world, comm)
                                                : make_thread_transport(ctx, group, rank),
                         comm);
      try {
        body(ctx, ranks);
        ranks.drain(ctx);
        ctx.synchronize();
        ranks.barrier(ctx, "end of the run");  // no rank frees memory that another may still read
      } catch (const std::exception& e) {
        group->abort(rank, words_of(e));
        throw;
      }
    } catch (const std::exception& e) {
      errors[static_cast<std::size_t>(rank)] = std::current_exception();
      group->abort(rank, words_of(e));
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(world));
  for (int r = 0; r < world; ++r) {
    try {
      threads.push_back(start_rank(r, world, [&rank_main, r] { rank_main(r); }, start));
    } catch (...) {  // those that run would wait for it, and never be joined
      errors[static_cast<std::size_t>(r)] = std::current_exception();
      group->abort(r, "its thread did not start");
      break;
    }
  }
  for (std::thread& t : threads) t.join();
  // The first failure and not what the others made of it.
  if (group->failed_rank() < 0) return;
  if (const auto& first = errors[static_cast<std::size_t>(group->failed_rank())])
    std::rethrow_exception(first);
  for (const std::exception_ptr& e : errors) {  // the first one got over it: a part of the ranks had failed
    if (e) std::rethrow_exception(e);
  }
}

}  // namespace kiln
