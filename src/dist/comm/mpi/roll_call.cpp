// Before each collective every rank tells the group's first rank what it is about to do, and waits for its
// word. That costs one small message each way, and buys that a rank which brings another call, or none, is
// named, with what both sides said, before any data moves: never a wrong sum, never a silent wait.
#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "base/crc32c.h"
#include "base/error.h"
#include "dist/comm/mpi/mpi_group.h"
#include "dist/comm/mpi/mpi_tags.h"

namespace kiln {
namespace {

// What a rank says. The text is cut where it is longer; the check sum is of all of it.
struct Header {
  uint64_t sequence = 0;
  uint32_t sum = 0;
  std::array<char, 180> text{};

  Header() = default;
  Header(const std::string& t, uint64_t n) : sequence(n), sum(crc32c(std::as_bytes(std::span(t)))) {
    std::memcpy(text.data(), t.data(), std::min(t.size(), text.size() - 1));
  }
  bool agrees(const Header& o) const { return sequence == o.sequence && sum == o.sum && text == o.text; }
  std::string str() const { return text.data(); }
};

enum class Word : uint32_t { go, hold, stop };

// What the first rank answers. `hold`: it is there, and waits for others; so do not take it for missing.
struct Answer {
  Word word = Word::go;
  std::array<char, 700> text{};

  Answer() = default;
  Answer(Word w, const std::string& t) : word(w) {
    std::memcpy(text.data(), t.data(), std::min(t.size(), text.size() - 1));
  }
};

constexpr const char* kSameOrder = "every rank must call the same collectives in the same order";

// The hint travels with the text.
[[noreturn]] void stop(const std::string& text) {
  throw Error(text, text.find(" disagree") != std::string::npos
                        ? kSameOrder
                        : "see what that rank is doing; --comm-timeout sets how long to wait");
}

}  // namespace

void MpiGroup::roll_call(const std::string& title, const std::string& text, uint64_t sequence) {
  if (world_ == 1) return;
  const auto timeout = options_.comm.timeout;
  const Header mine(text, sequence);
  if (rank_ != 0) {
    MpiWaits sent(alarm_, timeout);
    send(sent, &mine, sizeof mine, 0, kHeaderTag);
    for (;;) {
      Answer answer;
      MpiWaits w(alarm_, timeout);
      receive(w, &answer, sizeof answer, 0, kAnswerTag);
      // A little longer than the first rank itself waits for others: its word names who is missing.
      if (!w.any_time(timeout + std::chrono::milliseconds(500)))
        stop(
            cat("[", title, "] ", names({rank_}), " waited ", timeout.count(), " ms; missing: ", names({0})));
      if (answer.word == Word::hold) continue;
      (void)sent.all();
      if (answer.word == Word::go) return;
      stop(answer.text.data());
    }
  }

  std::vector<Header> theirs(static_cast<std::size_t>(world_));
  MpiWaits w(alarm_, timeout);
  for (int r = 1; r < world_; ++r)
    receive(w, &theirs[static_cast<std::size_t>(r)], sizeof mine, r, kHeaderTag);
  std::vector<Answer> kept;  // sends in flight read them
  kept.reserve(16);
  MpiWaits told(alarm_, timeout);
  auto tell = [&](const Answer& answer, const std::vector<int>& absent) {
    kept.push_back(answer);
    for (int r = 1; r < world_; ++r) {
      if (std::find(absent.begin(), absent.end(), r) == absent.end())
        send(told, &kept.back(), sizeof answer, r, kAnswerTag);
    }
  };
  bool all = false;
  constexpr int kLooks = 4;
  for (int i = 0; i < kLooks && !all; ++i) {
    all = w.any_time(timeout / kLooks);
    if (!all && i + 1 < kLooks) tell({Word::hold, ""}, w.open_peers());
  }
  std::string wrong;
  if (!all) {
    wrong = cat("[", title, "] ", names({0}), " waited ", timeout.count(),
                " ms; missing: ", names(w.open_peers()));
  }
  for (int r = 1; r < world_ && all && wrong.empty(); ++r) {
    const Header& h = theirs[static_cast<std::size_t>(r)];
    if (mine.agrees(h)) continue;
    const bool counted = mine.sequence != h.sequence;
    wrong = cat("ranks disagree: ", names({0}), " calls ", mine.str(),
                counted ? cat(" (call ", mine.sequence, ")") : "", ", ", names({r}), " calls ", h.str(),
                counted ? cat(" (call ", h.sequence, ")") : "");
  }
  tell(wrong.empty() ? Answer() : Answer(Word::stop, wrong), w.open_peers());
  (void)told.all();  // small and eager: done unless a rank is gone, and then the next call says so
  if (!wrong.empty()) stop(wrong);
}

void MpiGroup::greet(const CommCall& call) {
  const bool sends = call.what != Collective::recv, takes = call.what != Collective::send;
  const int from = call.what == Collective::recv ? call.peer : call.source;
  CommCall parcel = call;  // both ends must agree on size, dtype and subject, not on the word
  parcel.what = Collective::send;
  std::string title(name_of(call.what));
  if (!call.subject.empty()) title += " of " + call.subject;

  parcel.peer = members_[static_cast<std::size_t>(sends ? call.peer : rank_)];
  const Header as_sender(parcel.text(), 0);
  parcel.peer = members_[static_cast<std::size_t>(rank_)];
  if (call.what == Collective::send_recv) parcel.count = call.take;
  const Header as_taker(parcel.text(), 0);
  Header of_taker, of_sender;
  MpiWaits w(alarm_, options_.comm.timeout);
  if (sends) {
    send(w, &as_sender, sizeof as_sender, call.peer, kSenderTag);
    receive(w, &of_taker, sizeof of_taker, call.peer, kTakerTag);
  }
  if (takes) {
    send(w, &as_taker, sizeof as_taker, from, kTakerTag);
    receive(w, &of_sender, sizeof of_sender, from, kSenderTag);
  }
  if (!w.all())
    stop(cat("[", title, "] ", names({rank_}), " waited ", options_.comm.timeout.count(),
             " ms; missing: ", names(w.open_peers())));
  if (sends && !as_sender.agrees(of_taker))
    stop(cat("ranks disagree: ", names({rank_}), " sends: ", as_sender.str(), ", ", names({call.peer}),
             " expects: ", of_taker.str()));
  if (takes && !as_taker.agrees(of_sender))
    stop(cat("ranks disagree: ", names({rank_}), " expects: ", as_taker.str(), ", ", names({from}),
             " sends: ", of_sender.str()));
}

}  // namespace kiln
