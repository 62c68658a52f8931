#include "dist/launch/rank_agreement.h"

#include <algorithm>
#include <exception>
#include <new>

namespace kiln {
namespace {

// The same number from everybody.
std::vector<double> gather(RankContext& ctx, Communicator& comm, const std::vector<double>& mine,
                           std::string_view subject) {
  const auto n = static_cast<int64_t>(mine.size());
  std::vector<double> all(mine.size() * static_cast<std::size_t>(comm.world()));
  const Tensor shard = ctx.empty({n}, DType::f64, Tag::workspace);
  const Tensor whole = ctx.empty({n * comm.world()}, DType::f64, Tag::workspace);
  ctx.upload(shard, mine.data());
  comm.all_gather(ctx, shard, whole, subject).wait(ctx);
  ctx.download(all.data(), whole);
  return all;
}

}  // namespace

std::vector<std::vector<double>> all_gather_numbers(RankContext& ctx, Communicator& comm,
                                                    std::span<const double> mine, std::string_view subject) {
  const std::vector<double> counts = gather(ctx, comm, {static_cast<double>(mine.size())}, subject);
  const auto most = static_cast<std::size_t>(*std::max_element(counts.begin(), counts.end()));
  std::vector<std::vector<double>> ranks(counts.size());
  if (most == 0) return ranks;
  std::vector<double> padded(mine.begin(), mine.end());
  padded.resize(most);
  const std::vector<double> all = gather(ctx, comm, padded, subject);
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(r * most);
    ranks[r].assign(begin, begin + static_cast<std::ptrdiff_t>(counts[r]));
  }
  return ranks;
}

std::vector<std::string> all_gather_text(RankContext& ctx, Communicator& comm, std::string_view mine,
                                         std::string_view subject) {
  std::vector<double> letters;
  for (const char c : mine) letters.push_back(static_cast<unsigned char>(c));
  std::vector<std::string> texts;
  for (const std::vector<double>& rank : all_gather_numbers(ctx, comm, letters, subject)) {
    texts.emplace_back();
    for (const double c : rank) texts.back() += static_cast<char>(static_cast<unsigned char>(c));
  }
  return texts;
}

void all_or_throw(RankContext& ctx, Communicator& comm, std::string_view subject,
                  const std::function<void()>& work) {
  std::exception_ptr error;
  std::string said;
  std::string_view words;
  try {
    work();
  } catch (const std::bad_alloc& e) {  // told to all, it is an error like others; untold it would end the run
    words = words_of(e);
    error = std::make_exception_ptr(Error(std::string(words)));
  } catch (const std::exception& e) {
    error = std::current_exception();
    said = e.what();
    words = said.empty() ? "an error without a message" : std::string_view(said);
  }
  const std::vector<std::string> all = all_gather_text(ctx, comm, words, subject);
  if (error) std::rethrow_exception(error);
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (!all[r].empty()) throw Error(cat("rank ", r, " failed: ", all[r]));
  }
}

}  // namespace kiln
