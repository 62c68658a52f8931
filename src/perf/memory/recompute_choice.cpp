#include "perf/memory/recompute_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/units.h"

namespace kiln {
namespace {

constexpr int kMostProbes = 400;  // of plans; beyond them the search settles for the first that surely fits

// A set of pieces, of one block.
struct PieceCost {
  PieceSet again;
  std::size_t freed = 0;
  double seconds = 0;
};

// The first n blocks make `more` again, the others `less`.
struct Mix {
  PieceSet more, less;
  int64_t n = 0;
  std::size_t freed = 0;
  double seconds = 0;

  Recompute policy(int64_t layers) const { return Recompute::plan({{more, n}, {less, layers - n}}); }
  PieceSet at(int64_t block) const { return block < n ? more : less; }
};

struct Failed {
  Mix mix;
  std::size_t excess;
};

bool contains(PieceSet a, PieceSet b) { return (a.bits() & b.bits()) == b.bits(); }

bool contains(const Mix& a, const Mix& b, int64_t layers) {
  // Both are constant between these.
  for (const int64_t block : {int64_t{0}, a.n, b.n}) {
    if (block < layers && !contains(a.at(block), b.at(block))) return false;
  }
  return true;
}

// Of a stack of any height.
Recompute every_block(PieceSet again) {
  Recompute r = Recompute::plan({{again, 1}});
  r.runs[0].blocks = 0;
  return r;
}

class Search {
 public:
  Search(const BlockRequest& block, std::size_t budget, const PolicyProbe& probe)
      : block_(block), budget_(budget), probe_(probe), layers_(block.model.layers) {}

  PolicyChoice run() {
    choice_.none = choice_.least = tried(Recompute::none);
    if (choice_.none.peak <= budget_) {
      choice_.chosen = choice_.none;
      return choice_;
    }
    const std::vector<Mix> mixes = candidates(front());
    if (!by_cost(mixes)) by_memory(mixes);
    if (!choice_.chosen) spans();
    return choice_;
  }

 private:
  PolicyPoint tried(const Recompute& r) {
    ++choice_.probes;
    PolicyPoint p = probe_(r);
    if (choice_.probes == 1 || p.peak < choice_.least.peak) choice_.least = p;
    return p;
  }

  // Sets none of which is both dearer and larger than another, the cheapest first.
  std::vector<PieceCost> front() {
    std::array<PieceCost, kPieces> pieces;
    const std::size_t all = block_kept(block_, Recompute::none);
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      PieceCost& c = pieces[i];
      c.again.add(static_cast<Piece>(i));
      const std::size_t kept = block_kept(block_, every_block(c.again));
      c.freed = all - std::min(kept, all);
      const double seconds = tried(Recompute::plan({{c.again, layers_}})).seconds - choice_.none.seconds;
      c.seconds = std::max(0.0, seconds) / static_cast<double>(layers_);
    }
    std::vector<PieceCost> sets;
    for (unsigned bits = 0; bits < 1U << kPieces; ++bits) {
      PieceCost set{PieceSet::from_bits(bits)};
      for (const PieceCost& c : pieces) {
        if (!contains(set.again, c.again)) continue;
        set.freed += c.freed;
        set.seconds += c.seconds;
      }
      sets.push_back(set);
    }
    std::stable_sort(sets.begin(), sets.end(), [](const PieceCost& a, const PieceCost& b) {
      return a.seconds != b.seconds ? a.seconds < b.seconds : a.freed > b.freed;
    });
    std::vector<PieceCost> best;
    for (const PieceCost& s : sets) {
      if (best.empty() || s.freed > best.back().freed) best.push_back(s);
    }
    return best;
  }

  // Those that could fit, by what they cost.
  std::vector<Mix> candidates(const std::vector<PieceCost>& sets) const {
    const std::size_t needed = choice_.none.peak - budget_;
    std::vector<Mix> mixes;
    for (std::size_t j = 1; j < sets.size(); ++j) {
      for (std::size_t i = 0; i < j; ++i) {
        for (int64_t n = 1; n <= layers_; ++n) {
          if (n == layers_ && i > 0) continue;  // the same whatever the others would do
          const auto more = static_cast<std::size_t>(n), less = static_cast<std::size_t>(layers_ - n);
          const Mix m{
              sets[j].again, sets[i].again, n, more * sets[j].freed + less * sets[i].freed,
              static_cast<double>(n) * sets[j].seconds + static_cast<double>(layers_ - n) * sets[i].seconds};
          if (m.freed >= needed) mixes.push_back(m);
        }
      }
    }
    std::stable_sort(mixes.begin(), mixes.end(), [](const Mix& a, const Mix& b) {
      return a.seconds != b.seconds ? a.seconds < b.seconds : a.freed > b.freed;
    });
    return mixes;
  }

  bool cannot_fit(const Mix& m, const std::vector<Failed>& failed) const {
    return std::any_of(failed.begin(), failed.end(), [&](const Failed& f) {
      return m.freed < f.mix.freed + f.excess && contains(m, f.mix, layers_);
    });
  }

  // True where every plan was either tried or cannot fit, or one was chosen.
  bool by_cost(const std::vector<Mix>& mixes) {
    std::vector<Failed> failed;
    for (const Mix& m : mixes) {
      if (cannot_fit(m, failed)) continue;
      if (static_cast<int>(failed.size()) == kMostProbes) return false;
      const PolicyPoint p = tried(m.policy(layers_));
      if (p.peak <= budget_) {
        choice_.chosen = p;
        return true;
      }
      failed.push_back({m, p.peak - budget_});
    }
    return true;
  }

  // The cheapest one of those that treat all blocks alike, then of as few blocks as will do.
  void by_memory(const std::vector<Mix>& mixes) {
    for (const Mix& m : mixes) {
      if (m.n != layers_) continue;
      PolicyPoint best = tried(m.policy(layers_));
      if (best.peak > budget_) continue;
      int64_t too_few = 0, enough = layers_;
      while (enough - too_few > 1) {
        const int64_t n = too_few + (enough - too_few) / 2;
        const PolicyPoint p = tried(Recompute::plan({{m.more, n}, {PieceSet(), layers_ - n}}));
        if (p.peak <= budget_) best = p;
        (p.peak <= budget_ ? enough : too_few) = n;
      }
      choice_.chosen = best;
      return;
    }
  }

  // Below what plans reach: spans, which keep no more than some blocks' inputs.
  void spans() {
    std::vector<Recompute> policies = {Recompute::block};
    const auto root = static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(layers_))));
    for (const int64_t k : {int64_t{2}, int64_t{3}, int64_t{4}, root, 2 * root}) {
      if (k > 1 && k < layers_ &&
          std::find(policies.begin(), policies.end(), Recompute::every(k)) == policies.end())
        policies.push_back(Recompute::every(k));
    }
    policies.push_back(Recompute::nested);
    for (const Recompute& r : policies) {
      const PolicyPoint p = tried(r);
      if (p.peak <= budget_ && (!choice_.chosen || p.seconds < choice_.chosen->seconds)) choice_.chosen = p;
    }
  }

  const BlockRequest& block_;
  std::size_t budget_;
  const PolicyProbe& probe_;
  int64_t layers_;
  PolicyChoice choice_;
};

}  // namespace

PolicyChoice choose_policy(const BlockRequest& block, std::size_t budget, const PolicyProbe& probe) {
  return Search(block, budget, probe).run();
}

PolicyPoint chosen_or_throw(const PolicyChoice& choice, std::size_t budget) {
  if (choice.chosen) return *choice.chosen;
  throw Error(fmt::format("no recompute policy brings this step below {} ({} bytes); the least is {} ({} "
                          "bytes), by --recompute {}",
                          human({budget}), budget, human({choice.least.peak}), choice.least.peak,
                          name_of(choice.least.recompute)),
              "give that much, or take a smaller --batch, --ctx or --size, or --precision bf16",
              ErrorKind::usage);
}

std::string policy_text(const PolicyChoice& choice) {
  if (!choice.chosen) return {};
  const PolicyPoint &c = *choice.chosen, &none = choice.none;
  if (c.recompute == none.recompute) return fmt::format("recompute none: its peak is {}", human({none.peak}));
  return fmt::format("recompute {}: peak {}, {:.1f} % more time than none, which peaks at {}",
                     name_of(c.recompute), human({c.peak}), 100 * (c.seconds / none.seconds - 1),
                     human({none.peak}));
}

}  // namespace kiln
