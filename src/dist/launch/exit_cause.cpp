#include <cstring>
#include <regex>

#include "dist/launch/launch.h"

namespace kiln {
namespace {

// "(pid 812 on node7)", as far as it is known.
std::string who(int rank, const RankStatus& line) {
  std::string s = cat("rank ", rank);
  if (line.pid != 0) s += cat(" (pid ", line.pid, " on ", line.host, ")");
  return s;
}

std::string where(const RankStatus& line) {
  std::string s;
  if (line.step >= 0) s += cat(" in step ", line.step);
  if (line.in_call) return s + cat(" in ", line.call);
  if (!line.call.empty()) return s + cat(" after ", line.call);
  if (line.state == RankState::absent) return s + " before it had started";
  return s + " before its first collective";
}

// After a time-out: the ranks that noted no failure when all others have, with where they were. In the
// middle of a collective a rank may wait for one that itself waits for the failed one. One that was stopped
// notes something too, when it is woken to be ended.
std::string silent_ranks(const std::vector<RankStatus>& ranks, const std::string& error) {
  std::string s;
  if (error.find(" waited ") == std::string::npos) return s;
  for (int r = 0; r < static_cast<int>(ranks.size()); ++r) {
    const RankStatus& l = ranks[static_cast<std::size_t>(r)];
    if (l.state == RankState::failed && !l.stopped) continue;
    s += cat(s.empty() ? "; silent: " : ", ", who(r, l), l.stopped ? ", stopped," : "", where(l));
  }
  return s;
}

}  // namespace

ExitCause read_exit_cause(const std::string& chatter) {
  ExitCause v;
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

Error explain_failure(const std::vector<RankStatus>& ranks, const ExitCause& cause, int status) {
  const auto line_of = [&](int rank) {
    return rank >= 0 && rank < static_cast<int>(ranks.size()) ? ranks[static_cast<std::size_t>(rank)]
                                                              : RankStatus{};
  };
  // A rank that was killed comes first: what the others noted is what they made of it.
  if (cause.signal != 0)
    return Error(cat(who(cause.rank, line_of(cause.rank)), " was ended by signal ", cause.signal, " (",
                     ::strsignal(cause.signal), ")", where(line_of(cause.rank))),
                 cause.signal == 9 ? "the kernel does that where memory runs out: see dmesg" : "");
  int first = -1;
  for (int r = 0; r < static_cast<int>(ranks.size()); ++r) {
    const RankStatus& l = ranks[static_cast<std::size_t>(r)];
    if (l.state == RankState::failed && (first < 0 || l.failed_at < line_of(first).failed_at)) first = r;
  }
  if (first >= 0) {
    const RankStatus l = line_of(first);
    return Error(cat(who(first, l), ": ", l.error, silent_ranks(ranks, l.error)), l.hint, l.kind);
  }
  if (cause.rank >= 0)
    return Error(cat(who(cause.rank, line_of(cause.rank)), " ended with status ", cause.exit_status,
                     where(line_of(cause.rank))));
  return Error(cat("mpirun ended with status ", status, " and named no rank"),
               "see its output above; try `mpirun -n 2 hostname`");
}

}  // namespace kiln
