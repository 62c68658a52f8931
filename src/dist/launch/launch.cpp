#include "dist/launch/launch.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "device/cpu/host_limits.h"
#include "dist/comm/mpi_process.h"
#include "dist/launch/launch_folder.h"
#include "dist/launch/mpirun_command.h"
#include "dist/launch/process_tree.h"
#include "dist/launch/rank_limit.h"
#include "dist/launch/rank_processes.h"
#include "dist/launch/transports.h"

namespace kiln {
namespace {

using Clock = std::chrono::steady_clock;

// Bytes to lines.
class LineReader {
 public:
  template <class Use>
  bool read(int file, Use use) {  // false at the end
    std::array<char, 8192> buffer{};
    const ssize_t n = ::read(file, buffer.data(), buffer.size());
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    rest_.append(buffer.data(), static_cast<std::size_t>(n));
    for (std::size_t end = 0; (end = rest_.find('\n')) != std::string::npos; rest_.erase(0, end + 1))
      use(rest_.substr(0, end));
    return n > 0;
  }
  template <class Use>
  void last(Use use) {
    if (!rest_.empty()) use(rest_);
    rest_.clear();
  }

 private:
  std::string rest_;
};

// Between fork and exec: nothing but calls that are safe there.
[[noreturn]] void become(char* const* args, char* const* environment, int output, int errors, pid_t parent) {
  ::setpgid(0, 0);                          // Ctrl-C is the launcher's, which passes it on in its own way
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);       // upon which mpirun ends its ranks
  if (::getppid() != parent) ::_exit(127);  // it ended before the line above
  for (int s : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) std::signal(s, SIG_DFL);
  const int nothing = ::open("/dev/null", O_RDONLY);
  if (nothing >= 0) ::dup2(nothing, STDIN_FILENO);
  if (output != STDOUT_FILENO) ::dup2(output, STDOUT_FILENO);
  ::dup2(errors, STDERR_FILENO);
  ::execve(args[0], args, environment);
  ::_exit(127);
}

// mpirun's own messages are between lines of dashes; the rest of its stderr is of ranks on other machines.
class Chatter {
 public:
  // Is it a rank's?
  bool passes(const std::string& line) {
    text_ += line + "\n";
    if (line.starts_with("------")) {
      inside_ = !inside_;
      return false;
    }
    return !inside_;
  }
  const std::string& text() const { return text_; }

 private:
  bool inside_ = false;
  std::string text_;
};

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> all;
  all.reserve(words.size() + 1);
  for (std::string& word : words) all.push_back(word.data());
  all.push_back(nullptr);
  return all;
}

class Launch {
 public:
  Launch(const LaunchRequest& request, const std::string& mpirun)
      : r_(request), folder_(request.ranks), processes_(folder_, request.ranks) {
    std::vector<std::string> args =
        mpirun_args(request, mpirun, folder_.path(), read_host_limits().cpus_usable);
    std::vector<std::string> variables = mpirun_environment(request, folder_.path(), new_job_token());
    const std::vector<char*> argv = pointers(args), environment = pointers(variables);
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw Error(cat("cannot make a pipe: ", std::strerror(errno)));
    errors_ = ends[0];
    std::fflush(stdout);
    const pid_t parent = ::getpid();
    child_ = ::fork();
    if (child_ == 0) become(argv.data(), environment.data(), request.output, ends[1], parent);
    ::close(ends[1]);
    if (child_ < 0) {
      ::close(errors_);
      throw Error(cat("cannot start a process: ", std::strerror(errno)));
    }
  }
  ~Launch() {
    (void)tree_.end(kLastMoment);
    ::close(errors_);
  }
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;

  void run() {
    const int status = watch();
    (void)tree_.end(kLastMoment);  // what is left
    if (!gave_up_.empty()) throw Error(gave_up_, hint_);
    const bool well = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (well) return;
    if (stopping_) throw Error("the ranks were ended by a signal before they were done");
    std::vector<RankStatus> lines;
    lines.reserve(static_cast<std::size_t>(r_.ranks));
    for (int i = 0; i < r_.ranks; ++i) {
      lines.push_back(folder_.status_page().read(i));
      lines.back().stopped = processes_.was_stopped(i);
    }
    const ExitCause cause = read_exit_cause(chatter_.text());
    const int number = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    const Error error = explain_failure(lines, cause, number);
    if (std::string(error.what()).starts_with("mpirun")) tell(-1, chatter_.text());
    throw error;
  }

 private:
  void tell(int rank, const std::string& line) const {
    if (r_.on_line) return r_.on_line(rank, line);
    if (rank < 0) {
      std::fprintf(stderr, "%s\n", line.c_str());
    } else {
      std::fprintf(stderr, "[rank %d] %s\n", rank, line.c_str());
    }
  }

  void read_all() {
    for (std::size_t i = 0; i < folder_.pipes().size(); ++i) {
      ranks_lines_.resize(folder_.pipes().size());
      ranks_lines_[i].read(folder_.pipes()[i],
                           [&](const std::string& line) { tell(static_cast<int>(i), line); });
    }
  }

  // Until mpirun ends; its wait status.
  int watch() {
    const Clock::time_point begun = Clock::now();
    Clock::time_point looked = begun;
    bool open = true;
    int status = 0;
    for (;;) {
      std::vector<pollfd> files;
      for (int file : folder_.pipes()) files.push_back({file, POLLIN, 0});
      if (open) files.push_back({errors_, POLLIN, 0});
      (void)::poll(files.data(), files.size(), 50);
      read_all();
      if (open && files.back().revents != 0)
        open = mpirun_lines_.read(errors_, [&](const std::string& line) {
          if (chatter_.passes(line)) tell(-1, line);
        });
      const pid_t ended = ::waitpid(child_, &status, WNOHANG);
      if (ended == child_) break;
      pass_on_signals();
      if (ending_ && Clock::now() - *ending_ > kMpirunsMoment) tree_.signal(SIGKILL, child_);
      if (Clock::now() - looked > std::chrono::milliseconds(200)) {
        looked = Clock::now();
        processes_.look_for_stopped();
        if (!ending_) look_for_missing(std::chrono::duration<double>(looked - begun).count());
        end_after_failure();
      }
    }
    // What it said last. Its end of the pipe may live on in its own helper, so no waiting for the end.
    pollfd rest{errors_, POLLIN, 0};
    while (open && ::poll(&rest, 1, 100) > 0) {
      open = mpirun_lines_.read(errors_, [&](const std::string& line) {
        if (chatter_.passes(line)) tell(-1, line);
      });
    }
    read_all();
    for (std::size_t i = 0; i < ranks_lines_.size(); ++i)
      ranks_lines_[i].last([&](const std::string& line) { tell(static_cast<int>(i), line); });
    return status;
  }

  // The first signal is the ranks' too: each finishes its step and saves. One that is only starting gets it
  // when it is there.
  void pass_on_signals() {
    if (!stopping_ && r_.stop && r_.stop()) stopping_ = Clock::now();
    if (!stopping_ || ending_) return;
    processes_.signal_once(SIGTERM);
    const bool nobody_yet = r_.hosts.empty() && !any_started();  // nothing to finish, nothing to save
    if (nobody_yet || (r_.end_now && r_.end_now())) return end_all();
    if (std::chrono::duration<double>(Clock::now() - *stopping_).count() < r_.grace) return;
    gave_up_ = cat("the ranks had not ended ", r_.grace, " s after the signal, and were killed");
    hint_ = "--grace sets how long they have to finish their step and save";
    end_all();
  }

  bool any_started() const {
    for (int i = 0; i < r_.ranks; ++i)
      if (folder_.status_page().read(i).state != RankState::absent) return true;
    return false;
  }

  // mpirun first: it knows the machines of its ranks. What does not end then is killed, wherever in the tree.
  void end_all() {
    ending_ = Clock::now();
    ::kill(child_, SIGTERM);
  }

  // MPI itself waits for its ranks forever; one that starts and never reaches the rendezvous is named here.
  void look_for_missing(double seconds) {
    if (seconds < r_.timeout) return;
    std::string missing;
    int met = 0;
    for (int i = 0; i < r_.ranks; ++i) {
      const RankStatus line = folder_.status_page().read(i);
      if (line.state == RankState::absent && !r_.hosts.empty()) continue;  // on another machine, maybe
      if (line.state == RankState::absent || line.state == RankState::started) {
        missing += cat(missing.empty() ? "rank " : ", rank ", i);
        if (line.pid != 0) missing += cat(" (pid ", line.pid, ")");
      } else {
        ++met;
      }
    }
    if (missing.empty() || (met == 0 && seconds < 2 * r_.timeout)) return;  // none: a slow start of all
    gave_up_ = cat(missing, " did not come to the start of the run within ", r_.timeout, " s");
    hint_ = "see what that rank is doing; --comm-timeout sets how long to wait";
    end_all();
  }

  // A rank has failed and mpirun does not end: it waits for a machine that no longer answers. The other ranks
  // had time to say what they made of it; those over there end by their own time-outs.
  void end_after_failure() {
    int64_t failed_at = 0;
    for (int i = 0; i < r_.ranks; ++i) {
      const RankStatus line = folder_.status_page().read(i);
      if (line.state == RankState::failed && (failed_at == 0 || line.failed_at < failed_at))
        failed_at = line.failed_at;
    }
    if (failed_at == 0) return;
    const std::chrono::nanoseconds now = std::chrono::system_clock::now().time_since_epoch();
    if (now - std::chrono::nanoseconds(failed_at) > kPatience) ::kill(child_, SIGKILL);
  }

  static constexpr std::chrono::seconds kPatience{5};
  static constexpr std::chrono::milliseconds kMpirunsMoment{2000}, kLastMoment{2000};  // together below 5 s

  const LaunchRequest& r_;
  LaunchFolder folder_;
  RankProcesses processes_;
  ProcessTree tree_;
  pid_t child_ = -1;
  int errors_ = -1;
  std::vector<LineReader> ranks_lines_;
  LineReader mpirun_lines_;
  Chatter chatter_;
  std::optional<Clock::time_point> stopping_, ending_;  // since when
  std::string gave_up_, hint_;
};

}  // namespace

std::string find_mpirun() {
  if (const char* const given = std::getenv("KILN_MPIRUN")) return ::access(given, X_OK) == 0 ? given : "";
  const char* const path = std::getenv("PATH");
  for (std::string_view rest = path == nullptr ? "" : path; !rest.empty();) {
    const std::size_t colon = std::min(rest.find(':'), rest.size());
    const std::string file = cat(rest.substr(0, colon), "/mpirun");
    if (::access(file.c_str(), X_OK) == 0) return file;
    rest.remove_prefix(std::min(colon + 1, rest.size()));
  }
  return {};
}

void launch_ranks(const LaunchRequest& request) {
  check_rank_count("the number of ranks", ranks_of_a_machine(request.ranks, request.hosts),
                   request.oversubscribe);
  if (!mpi_built_in())
    throw Error("this kiln was built without MPI, which starts ranks as processes",
                "apt install libopenmpi-dev openmpi-bin, then `make build`; or use --transport threads",
                ErrorKind::unavailable);
  const std::string mpirun = find_mpirun();
  if (mpirun.empty())
    throw Error("mpirun was not found on PATH", "apt install openmpi-bin; or use --transport threads",
                ErrorKind::unavailable);
  if (const std::string why = find_transport(request.transport).why_not();
      request.hosts.empty() && !why.empty())
    throw Error(cat("ranks over ", request.transport, " cannot run here: ", why),
                "`kiln doctor` says what this machine has; --transport mpi and threads need no GPU",
                ErrorKind::unavailable);
  Launch(request, mpirun).run();
}

}  // namespace kiln
