#include "dist/comm/rendezvous/tcp_store.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>

#include "base/error.h"

namespace kiln {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::array<char, 8> kMagic = {'k', 'i', 'l', 'n', 'm', 'e', 'e', 't'};
constexpr uint32_t kVersion = 1;
constexpr uint32_t kMostBytes = 4096;  // of a frame
constexpr std::size_t kTokenBytes = 64;

struct Hello {
  std::array<char, 8> magic = kMagic;
  uint32_t version = kVersion;
  int32_t rank = 0, world = 1;
  std::array<char, kTokenBytes> token{};
};

class Socket {
 public:
  explicit Socket(int file = -1) : file_(file) {}
  Socket(Socket&& o) noexcept : file_(std::exchange(o.file_, -1)) {}
  Socket& operator=(Socket&& o) noexcept {
    std::swap(file_, o.file_);
    return *this;
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket() {
    if (file_ >= 0) ::close(file_);
  }
  int file() const { return file_; }
  bool open() const { return file_ >= 0; }

  // False: the other side is gone, or the time is over.
  bool read(void* to, std::size_t bytes, Clock::time_point deadline) const {
    auto* place = static_cast<char*>(to);
    while (bytes > 0) {
      if (!ready(POLLIN, deadline)) return false;
      const ssize_t n = ::recv(file_, place, bytes, 0);
      if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) return false;
      if (n > 0) place += n, bytes -= static_cast<std::size_t>(n);
    }
    return true;
  }
  bool write(const void* from, std::size_t bytes, Clock::time_point deadline) const {
    const auto* place = static_cast<const char*>(from);
    while (bytes > 0) {
      if (!ready(POLLOUT, deadline)) return false;
      const ssize_t n = ::send(file_, place, bytes, MSG_NOSIGNAL);
      if (n < 0 && errno != EINTR && errno != EAGAIN) return false;
      if (n > 0) place += n, bytes -= static_cast<std::size_t>(n);
    }
    return true;
  }
  bool write_frame(const std::string& text, Clock::time_point deadline) const {
    const auto n = static_cast<uint32_t>(text.size());
    return write(&n, sizeof n, deadline) && write(text.data(), n, deadline);
  }
  bool read_frame(std::string& text, Clock::time_point deadline) const {
    uint32_t n = 0;
    if (!read(&n, sizeof n, deadline) || n > kMostBytes) return false;
    text.resize(n);
    return read(text.data(), n, deadline);
  }
  bool ready(int16_t what, Clock::time_point deadline) const {
    for (;;) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
      if (left < 0) return false;
      pollfd p{file_, what, 0};
      const int n = ::poll(&p, 1, static_cast<int>(std::min<int64_t>(left, 1000)));
      if (n > 0) return true;
      if (n < 0 && errno != EINTR) return false;
    }
  }

 private:
  int file_;
};

sockaddr_in address_of(const std::string& name, int port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  const int wrong = ::getaddrinfo(name.c_str(), nullptr, &hints, &found);
  if (wrong != 0)
    throw Error(cat("[rendezvous] there is no machine '", name, "': ", ::gai_strerror(wrong)),
                "MASTER_ADDR is the address of rank 0's machine");
  sockaddr_in address{};
  std::memcpy(&address, found->ai_addr, sizeof address);
  ::freeaddrinfo(found);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

std::string missing_ranks(const std::vector<Socket>& ranks) {
  std::string s;
  for (std::size_t r = 1; r < ranks.size(); ++r) {
    if (!ranks[r].open()) s += cat(s.empty() ? "rank " : ", rank ", r);
  }
  return s;
}

class RealTcpMeeting final : public TcpMeeting {
 public:
  explicit RealTcpMeeting(const TcpMeetingOptions& options) : o_(options) {
    std::memcpy(hello_.token.data(), o_.token.data(), std::min(o_.token.size(), kTokenBytes));
    hello_.rank = o_.rank;
    hello_.world = o_.world;
    if (o_.rank == 0) listen();
  }

  int port() const override { return o_.port; }

  void meet() override {
    const Clock::time_point deadline = Clock::now() + o_.timeout;
    if (o_.rank == 0) {
      welcome(deadline);
    } else {
      go(deadline);
    }
  }

  std::vector<std::string> exchange(const std::string& mine) override {
    if (mine.size() > kMostBytes) throw Error(cat("a text of ", mine.size(), " bytes to exchange"));
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
    door_ = Socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int on = 1;
    ::setsockopt(door_.file(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in address = address_of(o_.address, o_.port);
    if (::bind(door_.file(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
        ::listen(door_.file(), 128) != 0) {
      const int why = errno;
      throw Error(cat("[rendezvous] rank 0 cannot listen at ", place(), ": ", std::strerror(why)),
                  why == EADDRINUSE      ? "another job has that port: give each its own MASTER_PORT"
                  : why == EADDRNOTAVAIL ? "MASTER_ADDR must be an address of rank 0's machine"
                                         : "choose another MASTER_ADDR and MASTER_PORT");
    }
    socklen_t length = sizeof address;
    ::getsockname(door_.file(), reinterpret_cast<sockaddr*>(&address), &length);
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

  void welcome(Clock::time_point deadline) {
    ranks_.resize(static_cast<std::size_t>(o_.world));
    while (!missing_ranks(ranks_).empty()) {
      if (!door_.ready(POLLIN, deadline))
        throw Error(cat("[rendezvous] rank 0 waited ", o_.timeout.count(), " ms at ", place(),
                        "; missing: ", missing_ranks(ranks_)),
                    "see whether those ranks were started, and reach this address");
      Socket caller(::accept4(door_.file(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!caller.open()) continue;
      Hello h;
      const Clock::time_point soon = std::min(deadline, Clock::now() + std::chrono::seconds(2));
      if (!caller.read(&h, sizeof h, soon) || h.magic != kMagic) continue;  // a stranger
      const std::string why = refusal(h);
      if (!caller.write_frame(why, soon) || !why.empty()) continue;
      ranks_[static_cast<std::size_t>(h.rank)] = std::move(caller);
    }
  }

  // Rank 0 may be late: until the time is over it is tried again.
  void go(Clock::time_point deadline) {
    const sockaddr_in address = address_of(o_.address, o_.port);
    for (;;) {
      Socket s(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      if (s.file() >= 0 &&
          ::connect(s.file(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
        const int on = 1;
        ::setsockopt(s.file(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        std::string why;
        if (!s.write(&hello_, sizeof hello_, deadline) || !s.read_frame(why, deadline))
          throw Error(cat("[rendezvous] what answers rank ", o_.rank, " at ", place(), " is not rank 0"),
                      "another program has that port: choose another MASTER_PORT");
        if (!why.empty())
          throw Error(cat("[rendezvous] rank ", o_.rank, " was turned away at ", place(), ": ", why),
                      "give each job its own MASTER_PORT, and every rank the same kiln and WORLD_SIZE");
        first_ = std::move(s);
        return;
      }
      const int why = errno;
      if (Clock::now() > deadline)
        throw Error(cat("[rendezvous] rank ", o_.rank, " waited ", o_.timeout.count(), " ms for rank 0 at ",
                        place(), ": ", std::strerror(why)),
                    "see whether rank 0 was started, and whether MASTER_ADDR and MASTER_PORT are its own");
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }

  TcpMeetingOptions o_;
  Hello hello_;
  Socket door_, first_;
  std::vector<Socket> ranks_;  // rank 0's
};

}  // namespace

std::unique_ptr<TcpMeeting> open_tcp_meeting(const TcpMeetingOptions& options) {
  return std::make_unique<RealTcpMeeting>(options);
}

}  // namespace kiln
