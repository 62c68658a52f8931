#include "dist/comm/threads/thread_group.h"

#include <algorithm>
#include <exception>
#include <new>
#include <numeric>

namespace kiln {
namespace {

std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

std::vector<int> all_ranks(int world) {
  std::vector<int> ranks(at(world));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

constexpr const char* kSameOrder = "every rank must call the same collectives in the same order";

}  // namespace

ThreadGroup::ThreadGroup(int world, std::chrono::milliseconds timeout)
    : members_(all_ranks(world)),
      timeout_(timeout),
      first_failed_(std::make_shared<std::atomic<int>>(-1)),
      arriving_(at(world)),
      posts_(at(world)),
      here_(at(world), false),
      reading_(at(world), false),
      leaving_(at(world), false),
      last_(at(world)),
      arrived_(at(world)),
      parcels_(at(world) * at(world)) {}

ThreadGroup::ThreadGroup(const ThreadGroup& whole, std::vector<int> members)
    : ThreadGroup(static_cast<int>(members.size()), whole.timeout_) {
  members_ = std::move(members);
  first_failed_ = whole.first_failed_;
}

void ThreadGroup::throw_failure() const {
  throw Error(failure_.empty() ? "another rank failed, without the memory to say why" : failure_,
              failure_hint_);
}

template <class Ready>
bool ThreadGroup::wait_for(std::unique_lock<std::mutex>& lock, Ready ready) {
  const bool in_time = changed_.wait_for(lock, timeout_, [&] { return ready() || failed_; });
  if (in_time && !ready()) throw_failure();
  return in_time;
}

void ThreadGroup::barrier(int rank, const CommPost& post, bool opens) {
  std::unique_lock lock(mutex_);
  if (failed_) throw_failure();
  arriving_[at(rank)] = post;
  here_[at(rank)] = true;
  last_[at(rank)] = post.text;
  const uint64_t mine = round_;
  if (++count_ == world()) {
    posts_ = arriving_;
    here_.assign(here_.size(), false);
    count_ = 0;
    ++round_;
    const bool agreed = disagreement().empty();
    reading_.assign(reading_.size(), opens && agreed);
    leaving_.assign(leaving_.size(), !opens && agreed);
    if (opens) arrived_.assign(arrived_.size(), Clock::now());
    changed_.notify_all();
  } else if (!wait_for(lock, [&] { return round_ != mine; })) {
    fail(rank,
         cat("[", post.title, "] ", name(rank), " waited ", timeout_.count(), " ms; ",
             opens ? "missing: " : "not done: ", missing_ranks()),
         last_calls());
    throw_failure();
  }
  if (const std::string d = disagreement(); !d.empty()) throw Error(d, kSameOrder);
}

void ThreadGroup::offer(int from, int to, const CommPost& post) {
  const std::lock_guard lock(mutex_);
  if (failed_) throw_failure();
  last_[at(from)] = post.text;
  Parcel& p = parcel(from, to);
  p.post = post;
  p.stage = Stage::offered;
  changed_.notify_all();
}

CommPost ThreadGroup::take(int to, int from, const CommPost& wanted) {
  std::unique_lock lock(mutex_);
  if (failed_) throw_failure();
  last_[at(to)] = wanted.text;
  Parcel& p = parcel(from, to);
  if (!wait_for(lock, [&] { return p.stage == Stage::offered; })) {
    fail(to,
         cat("[", wanted.title, "] ", name(to), " waited ", timeout_.count(), " ms; missing: ", name(from)),
         last_calls());
    throw_failure();
  }
  if (p.post.text != wanted.text) {
    fail(to,
         cat("ranks disagree: ", name(from), " sends ", p.post.text, ", ", name(to), " takes ", wanted.text),
         kSameOrder);
    throw_failure();
  }
  p.stage = Stage::taken;
  p.met = Clock::now();
  arrived_[at(to)] = std::max(arrived_[at(to)], p.met);
  reading_[at(to)] = true;
  return p.post;
}

void ThreadGroup::give_back(int to, int from, Event done) {
  const std::lock_guard lock(mutex_);
  reading_[at(to)] = false;
  Parcel& p = parcel(from, to);
  p.done = done;
  p.stage = Stage::back;
  leaving_[at(from)] = !failed_;  // from now on: it will wait for `done` when it collects
  changed_.notify_all();
}

Event ThreadGroup::collect(int from, int to) {
  std::unique_lock lock(mutex_);
  Parcel& p = parcel(from, to);
  if (!wait_for(lock, [&] { return p.stage == Stage::back; })) {
    fail(from,
         cat("[", p.post.title, "] ", name(from), " waited ", timeout_.count(), " ms; ",
             p.stage == Stage::taken ? "not done: " : "missing: ", name(to)),
         last_calls());
    throw_failure();
  }
  p.stage = Stage::empty;
  arrived_[at(from)] = std::max(arrived_[at(from)], p.met);
  return p.done;
}

void ThreadGroup::leave(int rank) {
  const std::lock_guard lock(mutex_);
  leaving_[at(rank)] = false;
  changed_.notify_all();
}

void ThreadGroup::wait_until_all_left() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return std::find(leaving_.begin(), leaving_.end(), true) == leaving_.end(); });
}

std::string ThreadGroup::disagreement() const {
  for (int r = 1; r < world(); ++r) {
    if (posts_[0].text == posts_[at(r)].text) continue;
    return cat("ranks disagree: ", name(0), " calls ", posts_[0].text, ", ", name(r), " calls ",
               posts_[at(r)].text);
  }
  return {};
}

std::string ThreadGroup::missing_ranks() const {
  std::string s;
  for (int r = 0; r < world(); ++r) {
    if (!here_[at(r)]) s += cat(s.empty() ? "" : ", ", name(r));
  }
  return s;
}

// What the others were at: of a rank that is missing, the call it made last.
std::string ThreadGroup::last_calls() const {
  std::string s;
  for (int r = 0; r < world(); ++r) {
    s += cat(s.empty() ? "last calls: " : "; ", name(r), ": ", last_[at(r)].empty() ? "none" : last_[at(r)]);
  }
  return s;
}

void ThreadGroup::fail(int rank, const std::string& message, const std::string& hint) noexcept {
  if (!failed_) {
    remember(message, hint);
    int nobody = -1;
    first_failed_->compare_exchange_strong(nobody, members_[at(rank)]);
    fail_parts(message, hint);
  }
  changed_.notify_all();
}

// That it failed, and the words, where there is memory for them: it may be for lack of memory that it fails.
void ThreadGroup::remember(const std::string& message, const std::string& hint) noexcept {
  failed_ = true;
  try {
    failure_ = message;
    failure_hint_ = hint;
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch)
  }
}

// Locks go from a group to its parts only.
void ThreadGroup::fail_parts(const std::string& message, const std::string& hint) noexcept {
  for (const auto& weak : parts_) {
    const std::shared_ptr<ThreadGroup> part = weak.lock();
    if (!part) continue;
    const std::lock_guard lock(part->mutex_);
    if (!part->failed_) part->remember(message, hint);
    part->fail_parts(message, hint);
    part->changed_.notify_all();
  }
}

void ThreadGroup::fail_of(int rank, const char* why) noexcept {
  std::string message;
  try {
    message = cat(name(rank), " failed: ", why);
  } catch (
      const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): remember() knows what to do without words
  }
  fail(rank, message, {});
}

void ThreadGroup::abort(int rank, const char* why) noexcept {
  const std::lock_guard lock(mutex_);
  fail_of(rank, why);
}

void ThreadGroup::abandon(int rank, const char* why) noexcept {
  std::unique_lock lock(mutex_);
  reading_[at(rank)] = leaving_[at(rank)] = false;
  fail_of(rank, why);
  changed_.wait(lock, [&] { return std::find(reading_.begin(), reading_.end(), true) == reading_.end(); });
}

std::shared_ptr<ThreadGroup> ThreadGroup::part(int color, const std::vector<int>& ranks) {
  const std::lock_guard lock(mutex_);
  Forming& f = forming_[color];
  if (!f.group) {
    std::vector<int> members;
    members.reserve(ranks.size());
    for (int r : ranks) members.push_back(members_[at(r)]);
    f = {std::make_shared<ThreadGroup>(*this, std::move(members)), static_cast<int>(ranks.size())};
    if (failed_) f.group->remember(failure_, failure_hint_);
    std::erase_if(parts_, [](const auto& weak) { return weak.expired(); });
    parts_.push_back(f.group);
  }
  const std::shared_ptr<ThreadGroup> group = f.group;
  if (--f.to_come == 0) forming_.erase(color);
  return group;
}

}  // namespace kiln
