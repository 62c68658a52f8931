#include "dist/comm/rendezvous/tcp_socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <future>
#include <memory>
#include <system_error>
#include <thread>

#include "base/error.h"

namespace kiln {
namespace {

constexpr int kKind = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;

struct Resolved {
  int wrong = 0;  // getaddrinfo's own
  in_addr address{};
};

Resolved look_up(const std::string& name) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  Resolved r;
  r.wrong = ::getaddrinfo(name.c_str(), nullptr, &hints, &found);
  if (r.wrong != 0) return r;
  sockaddr_in address{};
  std::memcpy(&address, found->ai_addr, sizeof address);
  ::freeaddrinfo(found);
  r.address = address.sin_addr;
  return r;
}

}  // namespace

int milliseconds_until(TcpSocket::Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - TcpSocket::Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1000));
}

TcpSocket::~TcpSocket() {
  if (file_ >= 0) ::close(file_);
}

bool TcpSocket::ready(int16_t what, Clock::time_point deadline) const {
  for (;;) {
    pollfd p{file_, what, 0};
    const int n = ::poll(&p, 1, milliseconds_until(deadline));
    if (n > 0) return true;
    if ((n < 0 && errno != EINTR) || Clock::now() >= deadline) return false;
  }
}

int TcpSocket::connect(const sockaddr_in& address, Clock::time_point deadline) {
  TcpSocket fresh(::socket(AF_INET, kKind, 0));
  if (!fresh.open()) return errno;
  if (::connect(fresh.file_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    if (errno != EINPROGRESS) return errno;
    if (!fresh.ready(POLLOUT, deadline)) return ETIMEDOUT;
    int why = 0;
    socklen_t length = sizeof why;
    if (::getsockopt(fresh.file_, SOL_SOCKET, SO_ERROR, &why, &length) != 0) return errno;
    if (why != 0) return why;
  }
  const int on = 1;
  ::setsockopt(fresh.file_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  *this = std::move(fresh);
  return 0;
}

std::ptrdiff_t TcpSocket::read_some(void* to, std::size_t bytes) const {
  const ssize_t n = ::recv(file_, to, bytes, 0);
  if (n > 0) return n;
  return n < 0 && (errno == EINTR || errno == EAGAIN) ? 0 : -1;
}

bool TcpSocket::read(void* to, std::size_t bytes, Clock::time_point deadline) const {
  auto* place = static_cast<char*>(to);
  while (bytes > 0) {
    if (!ready(POLLIN, deadline)) return false;
    const std::ptrdiff_t n = read_some(place, bytes);
    if (n < 0) return false;
    place += n;
    bytes -= static_cast<std::size_t>(n);
  }
  return true;
}

bool TcpSocket::write(const void* from, std::size_t bytes, Clock::time_point deadline) const {
  const auto* place = static_cast<const char*>(from);
  while (bytes > 0) {
    if (!ready(POLLOUT, deadline)) return false;
    const ssize_t n = ::send(file_, place, bytes, MSG_NOSIGNAL);
    if (n < 0 && errno != EINTR && errno != EAGAIN) return false;
    if (n > 0) place += n, bytes -= static_cast<std::size_t>(n);
  }
  return true;
}

bool TcpSocket::write_frame(const std::string& text, Clock::time_point deadline) const {
  const auto n = static_cast<uint32_t>(text.size());
  return write(&n, sizeof n, deadline) && write(text.data(), n, deadline);
}

bool TcpSocket::read_frame(std::string& text, Clock::time_point deadline) const {
  uint32_t n = 0;
  if (!read(&n, sizeof n, deadline) || n > kMostFrameBytes) return false;
  text.resize(n);
  return read(text.data(), n, deadline);
}

TcpSocket listen_at(sockaddr_in& address) {
  TcpSocket s(::socket(AF_INET, kKind, 0));
  const int on = 1;
  ::setsockopt(s.file(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(s.file(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(s.file(), SOMAXCONN) != 0)
    throw std::system_error(errno, std::generic_category());
  socklen_t length = sizeof address;
  ::getsockname(s.file(), reinterpret_cast<sockaddr*>(&address), &length);
  return s;
}

sockaddr_in resolve_address(const std::string& name, int port, TcpSocket::Clock::time_point deadline) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  if (::inet_pton(AF_INET, name.c_str(), &address.sin_addr) == 1) return address;
  // A name server that does not answer has its own time-outs, of many seconds, and cannot be interrupted: the
  // thread that asks it is left alone with its question.
  const auto answer = std::make_shared<std::promise<Resolved>>();
  std::future<Resolved> future = answer->get_future();
  std::thread([answer, name] { answer->set_value(look_up(name)); }).detach();
  const char* const hint = "MASTER_ADDR is the address of rank 0's machine";
  if (future.wait_until(deadline) != std::future_status::ready)
    throw Error(cat("[rendezvous] no name server said in time where '", name, "' is"), hint);
  const Resolved r = future.get();
  if (r.wrong != 0)
    throw Error(cat("[rendezvous] there is no machine '", name, "': ", ::gai_strerror(r.wrong)), hint);
  address.sin_addr = r.address;
  return address;
}

}  // namespace kiln
