#include "dist/comm/rendezvous/tcp_store.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <list>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"
#include "dist/comm/rendezvous/tcp_socket.h"

namespace kiln {
namespace {

using Clock = TcpSocket::Clock;
constexpr std::array<char, 8> kMagic = {'k', 'i', 'l', 'n', 'm', 'e', 'e', 't'};
constexpr uint32_t kVersion = 1;
constexpr std::size_t kTokenBytes = 64;
constexpr std::size_t kMostStrangers = 64;

struct Hello {
  std::array<char, 8> magic = kMagic;
  uint32_t version = kVersion;
  int32_t rank = 0, world = 1;
  std::array<char, kTokenBytes> token{};
};

// Somebody at the door, who may say its hello in any number of pieces, or never.
struct Caller {
  TcpSocket socket;
  Hello hello{};
  std::size_t bytes = 0;  // of the hello, so far

  // False: it went away, or is none of ours.
  bool listen() {
    char* const place = reinterpret_cast<char*>(&hello);
    const std::ptrdiff_t n = socket.read_some(place + bytes, sizeof hello - bytes);
    if (n < 0) return false;
    bytes += static_cast<std::size_t>(n);
    return std::memcmp(place, kMagic.data(), std::min(bytes, kMagic.size())) == 0;
  }
  bool complete() const { return bytes == sizeof hello; }
};

std::string missing_ranks(const std::vector<TcpSocket>& ranks) {
  std::string s;
  for (std::size_t r = 1; r < ranks.size(); ++r) {
    if (!ranks[r].open()) s += cat(s.empty() ? "rank " : ", rank ", r);
  }
  return s;
}

class RealTcpMeeting final : public TcpRendezvous {
 public:
  explicit RealTcpMeeting(const TcpRendezvousOptions& options) : o_(options) {
    if (o_.token.empty())  // strangers would be let in
      throw Error(
          "[rendezvous] the job has no token",
          "set KILN_JOB to the same words, nobody else's, for every rank; torchrun's --rdzv-id is one");
    if (o_.token.size() > kTokenBytes)
      throw Error(
          cat("[rendezvous] the job's token has ", o_.token.size(), " bytes; expected at most ", kTokenBytes),
          "shorten KILN_JOB, or torchrun's --rdzv-id");
    std::memcpy(hello_.token.data(), o_.token.data(), o_.token.size());
    hello_.rank = o_.rank;
    hello_.world = o_.world;
    if (o_.rank == 0) listen();
  }

  int port() const override { return o_.port; }

  void rendezvous() override {
    const Clock::time_point deadline = Clock::now() + o_.timeout;
    if (o_.rank == 0) {
      welcome(deadline);
    } else {
      go(deadline);
    }
  }

  std::vector<std::string> exchange(const std::string& mine) override {
    if (mine.size() > kMostFrameBytes) throw Error(cat("a text of ", mine.size(), " bytes to exchange"));
    const Clock::time_point deadline = Clock::now() + o_.timeout;
    std::vector<std::string> all(static_cast<std::size_t>(o_.world));
    if (o_.rank == 0) {
      all[0] = mine;
      for (std::size_t r = 1; r < all.size(); ++r) {
        if (!ranks_[r].read_frame(all[r], deadline)) throw gone(cat("rank ", r));
      }
      for (std::size_t r = 1; r < all.size(); ++r) {
        for (const std::string& text : all) {
          if (!ranks_[r].write_frame(text, deadline)) throw gone(cat("rank ", r));
        }
      }
      return all;
    }
    bool well = first_.write_frame(mine, deadline);
    for (std::string& text : all) well = well && first_.read_frame(text, deadline);
    if (!well) throw gone("rank 0");
    return all;
  }

 private:
  // A closed connection and one that says nothing look alike here.
  Error gone(const std::string& who) const {
    return Error(
        cat("[rendezvous] ", who, " went away, or did not answer within ", o_.timeout.count(), " ms"));
  }
  std::string place() const { return cat(o_.address, ":", o_.port); }

  void listen() {
    sockaddr_in address = resolve_address(o_.address, o_.port, Clock::now() + o_.timeout);
    try {
      door_ = listen_at(address);
    } catch (const std::system_error& e) {
      const int why = e.code().value();
      throw Error(cat("[rendezvous] rank 0 cannot listen at ", place(), ": ", std::strerror(why)),
                  why == EADDRINUSE      ? "another job has that port: give each its own MASTER_PORT"
                  : why == EADDRNOTAVAIL ? "MASTER_ADDR must be an address of rank 0's machine"
                                         : "choose another MASTER_ADDR and MASTER_PORT");
    }
    o_.port = ntohs(address.sin_port);
  }

  // Why a caller is not one of ours; empty: it is.
  std::string refusal(const Hello& h) const {
    if (h.version != kVersion) return cat("rank 0 speaks version ", kVersion, ", not ", h.version);
    if (h.token != hello_.token) return "rank 0 belongs to another job";
    if (h.world != o_.world) return cat("rank 0 waits for ", o_.world, " ranks, not ", h.world);
    if (h.rank < 1 || h.rank >= o_.world) return cat("there is no rank ", h.rank, " of ", o_.world);
    if (ranks_[static_cast<std::size_t>(h.rank)].open())
      return cat("another rank ", h.rank, " has come before");
    return {};
  }

  // All callers are heard side by side: one that says nothing, or a byte a second, delays nobody.
  void welcome(Clock::time_point deadline) {
    ranks_.resize(static_cast<std::size_t>(o_.world));
    std::list<Caller> callers;
    while (!missing_ranks(ranks_).empty()) {
      std::vector<pollfd> files = {{door_.file(), POLLIN, 0}};
      for (const Caller& c : callers) files.push_back({c.socket.file(), POLLIN, 0});
      (void)::poll(files.data(), files.size(), milliseconds_until(deadline));
      if (Clock::now() >= deadline)
        throw Error(cat("[rendezvous] rank 0 waited ", o_.timeout.count(), " ms at ", place(),
                        "; missing: ", missing_ranks(ranks_)),
                    "see whether those ranks were started, and reach this address");
      for (auto caller = callers.begin(); caller != callers.end();) {
        const bool ours = caller->listen();
        if (ours && caller->complete()) admit(*caller);
        caller = ours && !caller->complete() ? std::next(caller) : callers.erase(caller);
      }
      if (files.front().revents != 0) open_door(callers);
    }
    door_ = TcpSocket();  // who comes later is told at once that nobody is here
  }

  void open_door(std::list<Caller>& callers) {
    TcpSocket caller(::accept4(door_.file(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    const bool no_files = !caller.open() && (errno == EMFILE || errno == ENFILE);
    // A rank of ours has said its hello long before so many others have come.
    const bool crowd = callers.size() >= kMostStrangers + ranks_.size();
    if (!callers.empty() && (no_files || crowd)) callers.pop_front();
    if (caller.open()) callers.push_back({std::move(caller)});
  }

  // The reply is short enough for the system to take it at once.
  void admit(Caller& caller) {
    const std::string why = refusal(caller.hello);
    const bool told = caller.socket.write_frame(why, Clock::now() + std::chrono::milliseconds(100));
    if (told && why.empty()) ranks_[static_cast<std::size_t>(caller.hello.rank)] = std::move(caller.socket);
  }

  // Rank 0 may be late: until the time is over it is tried again.
  void go(Clock::time_point deadline) {
    constexpr std::chrono::milliseconds kAttempt{5000}, kPause{50};
    const sockaddr_in address = resolve_address(o_.address, o_.port, deadline);
    for (;;) {
      TcpSocket s;
      const int why_not = s.connect(address, std::min<Clock::time_point>(deadline, Clock::now() + kAttempt));
      if (why_not == 0) return introduce(std::move(s), deadline);
      if (Clock::now() >= deadline)
        throw Error(cat("[rendezvous] rank ", o_.rank, " waited ", o_.timeout.count(), " ms for rank 0 at ",
                        place(), ": ", std::strerror(why_not)),
                    "see whether rank 0 was started, and whether MASTER_ADDR and MASTER_PORT are its own");
      std::this_thread::sleep_until(std::min<Clock::time_point>(deadline, Clock::now() + kPause));
    }
  }

  void introduce(TcpSocket s, Clock::time_point deadline) {
    std::string why;
    if (!s.write(&hello_, sizeof hello_, deadline) || !s.read_frame(why, deadline))
      throw Error(cat("[rendezvous] what answers rank ", o_.rank, " at ", place(), " is not rank 0"),
                  "another program has that port: choose another MASTER_PORT");
    if (!why.empty())
      throw Error(cat("[rendezvous] rank ", o_.rank, " was rejected at ", place(), ": ", why),
                  "give each job its own MASTER_PORT, and every rank the same kiln and WORLD_SIZE");
    first_ = std::move(s);
  }

  TcpRendezvousOptions o_;
  Hello hello_;
  TcpSocket door_, first_;
  std::vector<TcpSocket> ranks_;  // rank 0's
};

}  // namespace

std::unique_ptr<TcpRendezvous> open_tcp_rendezvous(const TcpRendezvousOptions& options) {
  return std::make_unique<RealTcpMeeting>(options);
}

}  // namespace kiln
