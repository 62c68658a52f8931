#include "data/batch_loader.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/json_reader.h"
#include "base/start_thread.h"

namespace kiln {
namespace {

void check(const LoaderOptions& o) {
  const auto least = [](std::string_view name, int64_t value) {
    if (value < 1) throw Error(cat("the loader's ", name, " is ", value, "; expected 1 or more"));
  };
  least("batch", o.batch);
  least("context", o.context);
  least("number of micro-steps", o.micro_steps);
  least("number of ranks", o.world);
  if (o.rank < 0 || o.rank >= o.world) throw Error(cat("the loader's rank is ", o.rank, " of ", o.world));
  constexpr int64_t kMost = int64_t{1} << 40;
  if (o.context > kMost / o.batch || o.batch * o.context > kMost / o.micro_steps)
    throw Error(cat("a batch of ", o.micro_steps, " x ", o.batch, " x ", o.context, " tokens is too large"));
}

}  // namespace

BatchLoader::BatchLoader(std::shared_ptr<const TokenSet> tokens, const LoaderOptions& options)
    : tokens_(std::move(tokens)), options_(options) {
  check(options_);
  int64_t longest = 0;
  for (const TokenShard& shard : tokens_->shards()) {
    windows_before_.push_back(windows_);
    windows_ += static_cast<uint64_t>((shard.size() - 1) / options_.context);
    longest = std::max(longest, shard.size());
  }
  if (windows_ == 0) {
    throw Error(cat("the data has ", longest, " tokens in a piece; a context of ", options_.context,
                    " needs ", options_.context + 1),
                "give more text, or a shorter context");
  }
  if (options_.shuffle) order_ = std::make_unique<WindowOrder>(windows_, options_.seed);
  current_ = make_step();
  if (options_.prefetch) {
    ahead_ = make_step();
    thread_ = start_thread("the batches to come", [this] { prefetch(); });
    ask_for(0);
  }
}

BatchLoader::~BatchLoader() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  asked_.notify_one();
  thread_.join();
}

uint64_t BatchLoader::windows_per_step() const {
  return static_cast<uint64_t>(options_.world) * static_cast<uint64_t>(options_.micro_steps) *
         static_cast<uint64_t>(options_.batch);
}

BatchLoader::Step BatchLoader::make_step() const {
  const auto size = static_cast<std::size_t>(options_.batch * options_.context);
  Step step;
  step.ids.resize(2 * size * static_cast<std::size_t>(options_.micro_steps));
  for (std::size_t m = 0; m < static_cast<std::size_t>(options_.micro_steps); ++m) {
    const std::span<const int32_t> ids(step.ids);
    step.batches.push_back({ids.subspan(2 * m * size, size), ids.subspan((2 * m + 1) * size, size)});
  }
  return step;
}

void BatchLoader::fill(Step& step, uint64_t first) const {
  const auto T = static_cast<std::size_t>(options_.context), B = static_cast<std::size_t>(options_.batch);
  const auto k = static_cast<std::size_t>(options_.micro_steps);
  const auto rank = static_cast<std::size_t>(options_.rank), world = static_cast<std::size_t>(options_.world);
  for (std::size_t m = 0; m < k; ++m) {
    const uint64_t mine = first + (options_.ranks_first ? m * world + rank : rank * k + m) * B;
    int32_t* tokens = step.ids.data() + 2 * m * B * T;
    int32_t* targets = tokens + B * T;
    for (std::size_t b = 0; b < B; ++b) fill_window(mine + b, tokens + b * T, targets + b * T);
  }
}

void BatchLoader::fill_window(uint64_t place, int32_t* tokens, int32_t* targets) const {
  const uint64_t in_epoch = place % windows_;
  const uint64_t window = order_ ? order_->at(place / windows_, in_epoch) : in_epoch;
  // The last shard that begins at or before it; one without windows begins where the next does.
  const auto after = std::upper_bound(windows_before_.begin(), windows_before_.end(), window);
  const auto s = static_cast<std::size_t>(after - windows_before_.begin()) - 1;
  const TokenShard& shard = tokens_->shards()[s];
  const auto T = static_cast<std::size_t>(options_.context);
  const int64_t begin = static_cast<int64_t>(window - windows_before_[s]) * options_.context;
  shard.read(begin, {tokens, T}, tokens_->vocab_size());
  std::copy(tokens + 1, tokens + T, targets);
  shard.read(begin + options_.context, {targets + T - 1, 1}, tokens_->vocab_size());
}

std::span<const HostBatch> BatchLoader::next() {
  if (options_.prefetch) {
    wait_for_prefetch();
    std::swap(current_, ahead_);
    next_ += windows_per_step();
    ask_for(next_);
  } else {
    fill(current_, next_);
    next_ += windows_per_step();
  }
  return current_.batches;
}

LoaderState BatchLoader::state() const {
  return {.next = next_,
          .seed = options_.seed,
          .shuffle = options_.shuffle,
          .context = options_.context,
          .tokens = tokens_->size(),
          .checksum = tokens_->checksum()};
}

void BatchLoader::seek(const LoaderState& to) {
  const LoaderState here = state();
  const auto same = [](std::string_view name, auto saved, auto now) {
    if (saved != now)
      throw Error(cat("cannot resume in the data: ", name, " was ", saved, " and is ", now),
                  "resume with the same data, context and seed, or restart with --fresh");
  };
  same("the number of tokens", to.tokens, here.tokens);
  same("the checksum of the tokens", to.checksum, here.checksum);
  same("the context", to.context, here.context);
  same("the seed", to.seed, here.seed);
  same("shuffling", to.shuffle, here.shuffle);
  if (to.next > std::numeric_limits<uint64_t>::max() / 2)
    throw Error(cat("cannot resume in the data at window ", to.next));
  if (options_.prefetch) {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return !wanted_; });
    error_ = nullptr;
  }
  next_ = to.next;
  if (options_.prefetch) ask_for(next_);
}

void BatchLoader::ask_for(uint64_t first) {
  {
    std::lock_guard lock(mutex_);
    ahead_first_ = first;
    wanted_ = true;
  }
  asked_.notify_one();
}

void BatchLoader::wait_for_prefetch() {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return !wanted_; });
  if (error_) std::rethrow_exception(error_);
}

// The thread. It owns ahead_ while wanted_ is set, the caller while it is not.
void BatchLoader::prefetch() {
  std::unique_lock lock(mutex_);
  for (;;) {
    asked_.wait(lock, [&] { return wanted_ || stopping_; });
    if (stopping_) return;
    const uint64_t first = ahead_first_;
    lock.unlock();
    std::exception_ptr error;
    try {
      fill(ahead_, first);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    error_ = error;
    wanted_ = false;
    done_.notify_one();
  }
}

Json to_json(const LoaderState& state) {
  return {{"next", state.next},       {"seed", state.seed},     {"shuffle", state.shuffle},
          {"context", state.context}, {"tokens", state.tokens}, {"checksum", state.checksum}};
}

LoaderState loader_state(const JsonValue& json) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  return {.next = json.at("next").unsigned_integer(),
          .seed = json.at("seed").unsigned_integer(),
          .shuffle = json.at("shuffle").boolean(),
          .context = json.at("context").integer(1, kMost),
          .tokens = json.at("tokens").integer(1, kMost),
          .checksum = static_cast<uint32_t>(json.at("checksum").unsigned_integer(UINT32_MAX))};
}

}  // namespace kiln
