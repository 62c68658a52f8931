#include <cstring>
#include <regex>

#include "dist/launch/launch.h"

namespace kiln {
namespace {

// "(pid 812 on node7)", as far as it is known.
std::string who(int rank, const BoardLine& line) {
  std::string s = cat("rank ", rank);
  if (line.pid != 0) s += cat(" (pid ", line.pid, " on ", line.host, ")");
  return s;
}

std::string where(const BoardLine& line) {
  std::string s;
  if (line.step >= 0) s += cat(" in step ", line.step);
  if (line.in_call) return s + cat(" in ", line.call);
  if (!line.call.empty()) return s + cat(" after ", line.call);
  if (line.state == RankState::absent) return s + " before it had started";
  return s + " before its first collective";
}

// After a time-out: whoever has noted no failure of its own when all others have, with where it was. In the
// middle of a collective a rank may wait for one that itself waits for the one to blame. One that was stopped
// notes something too, when it is woken to be ended.
std::string silent_ranks(const std::vector<BoardLine>& ranks, const std::string& error) {
  std::string s;
  if (error.find(" waited ") == std::string::npos) return s;
  for (int r = 0; r < static_cast<int>(ranks.size()); ++r) {
    const BoardLine& l = ranks[static_cast<std::size_t>(r)];
    if (l.state == RankState::failed && !l.stopped) continue;
    s += cat(s.empty() ? "; silent: " : ", ", who(r, l), l.stopped ? ", stopped," : "", where(l));
  }
  return s;
}

}  // namespace

MpirunVerdict read_verdict(const std::string& chatter) {
  MpirunVerdict v;
  std::smatch m;
  static const std::regex kSignal(
      "process rank (\\d+) with PID \\d+ on node \\S+ exited on\\s+signal (\\d+)");
  static const std::regex kStatus("Process name: \\[\\[\\d+,\\d+\\],\\s*(\\d+)\\]\\s+Exit code:\\s+(\\d+)");
  if (std::regex_search(chatter, m, kSignal)) {
    v.rank = std::stoi(m[1]);
    v.signal = std::stoi(m[2]);
  } else if (std::regex_search(chatter, m, kStatus)) {
    v.rank = std::stoi(m[1]);
    v.exit_status = std::stoi(m[2]);
  }
  return v;
}

Error explain_failure(const std::vector<BoardLine>& ranks, const MpirunVerdict& verdict, int status) {
  const auto line_of = [&](int rank) {
    return rank >= 0 && rank < static_cast<int>(ranks.size()) ? ranks[static_cast<std::size_t>(rank)]
                                                              : BoardLine{};
  };
  // A rank that was killed comes first: what the others noted is what they made of it.
  if (verdict.signal != 0)
    return Error(cat(who(verdict.rank, line_of(verdict.rank)), " was ended by signal ", verdict.signal, " (",
                     ::strsignal(verdict.signal), ")", where(line_of(verdict.rank))),
                 verdict.signal == 9 ? "the kernel does that where memory runs out: see dmesg" : "");
  int first = -1;
  for (int r = 0; r < static_cast<int>(ranks.size()); ++r) {
    const BoardLine& l = ranks[static_cast<std::size_t>(r)];
    if (l.state == RankState::failed && (first < 0 || l.failed_at < line_of(first).failed_at)) first = r;
  }
  if (first >= 0) {
    const BoardLine l = line_of(first);
    return Error(cat(who(first, l), ": ", l.error, silent_ranks(ranks, l.error)), l.hint, l.kind);
  }
  if (verdict.rank >= 0)
    return Error(cat(who(verdict.rank, line_of(verdict.rank)), " ended with status ", verdict.exit_status,
                     where(line_of(verdict.rank))));
  return Error(cat("mpirun ended with status ", status, " and named no rank"),
               "its own words stand above; try `mpirun -n 2 hostname`");
}

}  // namespace kiln
