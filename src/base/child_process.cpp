#include "base/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <exception>

#include "base/error.h"

namespace kiln {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kKeptErrors = 16384;

struct Pipe {
  int from = -1, to = -1;
  Pipe() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw Error(cat("cannot make a pipe: ", std::strerror(errno)));
    from = ends[0];
    to = ends[1];
  }
  ~Pipe() {
    close_end(from);
    close_end(to);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  static void close_end(int& end) {
    if (end >= 0) ::close(end);
    end = -1;
  }
};

// What a child's stdout goes to; nothing where no path is given.
struct OpenFile {
  int file = -1;
  explicit OpenFile(const std::string& path) {
    if (path.empty()) return;
    file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (file < 0) throw Error(cat("cannot write ", path, ": ", std::strerror(errno)));
  }
  ~OpenFile() {
    if (file >= 0) ::close(file);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
};

// Between fork and exec: nothing but calls that are safe there.
[[noreturn]] void become(char* const* args, int output, int errors, pid_t parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);  // it ended before the line above
  for (int s : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) std::signal(s, SIG_DFL);
  const int nothing = ::open("/dev/null", O_RDWR);
  if (nothing < 0) ::_exit(127);
  ::dup2(nothing, STDIN_FILENO);
  ::dup2(output >= 0 ? output : nothing, STDOUT_FILENO);
  ::dup2(errors, STDERR_FILENO);
  ::execv(args[0], args);
  const char* why = "cannot start it\n";
  (void)!::write(STDERR_FILENO, why, std::strlen(why));
  ::_exit(127);
}

// Takes what there is; false at the end.
bool read_some(int from, std::string& text) {
  std::array<char, 4096> buffer{};
  const ssize_t n = ::read(from, buffer.data(), buffer.size());
  if (n < 0) return errno == EINTR || errno == EAGAIN;
  text.append(buffer.data(), static_cast<std::size_t>(n));
  return n > 0;
}

int wait_for(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

void write_all(int to, const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t n = ::write(to, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    done += static_cast<std::size_t>(n);
  }
}

}  // namespace

ChildResult run_child(const std::vector<std::string>& args, const ChildLimits& limits) {
  std::vector<char*> argv;
  std::vector<std::string> copies = args;
  argv.reserve(copies.size() + 1);
  for (std::string& word : copies) argv.push_back(word.data());
  argv.push_back(nullptr);
  Pipe errors;
  OpenFile output(limits.output);
  const Clock::time_point begun = Clock::now();
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) throw Error(cat("cannot start a process: ", std::strerror(errno)));
  if (child == 0) become(argv.data(), output.file, errors.to, parent);
  Pipe::close_end(errors.to);
  ChildResult result;
  auto spent = [&] { return std::chrono::duration<double>(Clock::now() - begun).count(); };
  double ended_at = 0;
  bool killed = false;
  auto end = [&](int signal) {
    ::kill(-child, signal);  // its own group, made by become(); the second call is for before that
    ::kill(child, signal);
  };
  for (bool open = true; open;) {
    pollfd ready{errors.from, POLLIN, 0};
    if (::poll(&ready, 1, 100) > 0) open = read_some(errors.from, result.errors);
    if (result.errors.size() > 2 * kKeptErrors) result.errors.erase(0, result.errors.size() - kKeptErrors);
    if (!result.timed_out && !result.stopped) {
      result.timed_out = limits.seconds > 0 && spent() > limits.seconds;
      result.stopped = !result.timed_out && limits.stop && limits.stop();
      if (!result.timed_out && !result.stopped) continue;
      ended_at = spent();
      if (limits.grace > 0) end(SIGTERM);
    }
    if (!killed && spent() >= ended_at + limits.grace) {
      killed = true;
      end(SIGKILL);
    }
  }
  const int status = wait_for(child);
  result.seconds = spent();
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  if (WIFEXITED(status)) result.status = WEXITSTATUS(status);
  return result;
}

std::string in_a_copy(const std::function<std::string()>& work) {
  Pipe answer;
  const pid_t child = ::fork();
  if (child < 0) throw Error(cat("cannot start a process: ", std::strerror(errno)));
  if (child == 0) {  // first byte: what kind of answer it is; then the text, and after a zero byte the hint
    std::string text;
    try {
      text = cat('=', work());
    } catch (const Error& e) {
      text = cat(static_cast<int>(e.kind()), e.what(), '\0', e.hint());
    } catch (const std::exception& e) {
      text = cat(static_cast<int>(ErrorKind::failed), e.what(), '\0');
    }
    write_all(answer.to, text);
    ::_exit(0);
  }
  Pipe::close_end(answer.to);
  std::string text;
  while (read_some(answer.from, text)) {
  }
  const int status = wait_for(child);
  if (text.empty() || !WIFEXITED(status)) throw Error(cat("a process ended without a reply (", status, ")"));
  if (text.front() == '=') return text.substr(1);
  const auto kind = static_cast<ErrorKind>(text.front() - '0');
  const std::size_t hint = text.find('\0');
  throw Error(text.substr(1, hint - 1), text.substr(hint + 1), kind);
}

}  // namespace kiln
