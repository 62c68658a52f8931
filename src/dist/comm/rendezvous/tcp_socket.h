// A TCP connection of which no call outlasts its deadline: connecting, reading and writing all wait in
// poll().
#pragma once

#include <netinet/in.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace kiln {

class TcpSocket {
 public:
  using Clock = std::chrono::steady_clock;

  explicit TcpSocket(int file = -1) : file_(file) {}  // not blocking, as everything here makes them
  TcpSocket(TcpSocket&& o) noexcept : file_(std::exchange(o.file_, -1)) {}
  TcpSocket& operator=(TcpSocket&& o) noexcept {
    std::swap(file_, o.file_);
    return *this;
  }
  TcpSocket(const TcpSocket&) = delete;
  TcpSocket& operator=(const TcpSocket&) = delete;
  ~TcpSocket();

  int file() const { return file_; }
  bool open() const { return file_ >= 0; }

  // One attempt. 0, or the errno of why not: ETIMEDOUT where nothing answers by the deadline. A packet filter
  // that drops packets answers nothing, and a blocking connect() would wait for the system's own two minutes.
  int connect(const sockaddr_in& address, Clock::time_point deadline);

  // False: the other side is gone, or the time is over.
  bool read(void* to, std::size_t bytes, Clock::time_point deadline) const;
  bool write(const void* from, std::size_t bytes, Clock::time_point deadline) const;
  bool write_frame(const std::string& text, Clock::time_point deadline) const;
  bool read_frame(std::string& text, Clock::time_point deadline) const;

  // What there is now, at most `bytes` of it. 0: nothing yet; -1: the other side is gone.
  std::ptrdiff_t read_some(void* to, std::size_t bytes) const;

 private:
  bool ready(int16_t what, Clock::time_point deadline) const;

  int file_;
};

inline constexpr uint32_t kMostFrameBytes = 4096;

// A TcpSocket that listens; its port is put into `address`. Throws std::system_error with the reason.
TcpSocket listen_at(sockaddr_in& address);

// Throws Error where there is no such machine, or its name is not resolved by the deadline.
sockaddr_in resolve_address(const std::string& name, int port, TcpSocket::Clock::time_point deadline);

// For poll(): until `deadline`, rounded up, at most a second.
int milliseconds_until(TcpSocket::Clock::time_point deadline);

}  // namespace kiln
