// Whatever a stranger sends to a TCP rendezvous, the ranks it is for complete it; and whatever answers a rank
// in place of rank 0, it gets a text or an Error.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>

#include "base/error.h"
#include "dist/comm/rendezvous/tcp_store.h"

namespace {

using kiln::TcpRendezvousOptions;

TcpRendezvousOptions options(int rank, int port) {
  TcpRendezvousOptions o;
  o.port = port;
  o.rank = rank;
  o.world = 2;
  o.token = "of the fuzzer";
  o.timeout = std::chrono::seconds(4);
  return o;
}

sockaddr_in loopback(int port) {
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  a.sin_port = htons(static_cast<std::uint16_t>(port));
  return a;
}

void say(int file, const std::uint8_t* data, std::size_t size) {
  while (size > 0) {
    const ssize_t n = ::send(file, data, size, MSG_NOSIGNAL);
    if (n <= 0) return;
    data += n;
    size -= static_cast<std::size_t>(n);
  }
}

void stranger_at_the_door(const std::uint8_t* data, std::size_t size) {
  const auto first = kiln::open_tcp_rendezvous(options(0, 0));
  const int file = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = loopback(first->port());
  if (::connect(file, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) std::abort();
  say(file, data, size);
  ::shutdown(file, SHUT_WR);
  std::thread second([port = first->port()] {
    const auto rendezvous = kiln::open_tcp_rendezvous(options(1, port));
    rendezvous->rendezvous();
    if (rendezvous->exchange("b")[0] != "a") std::abort();
  });
  first->rendezvous();
  if (first->exchange("a")[1] != "b") std::abort();
  second.join();
  ::close(file);
}

void stranger_in_the_house(const std::uint8_t* data, std::size_t size) {
  const int door = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = loopback(0);
  socklen_t length = sizeof address;
  if (::bind(door, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 || ::listen(door, 1) != 0 ||
      ::getsockname(door, reinterpret_cast<sockaddr*>(&address), &length) != 0)
    std::abort();
  std::thread stranger([&] {
    const int file = ::accept(door, nullptr, nullptr);
    say(file, data, size);
    ::shutdown(file, SHUT_WR);
    char heard = 0;
    while (::recv(file, &heard, 1, 0) > 0) {
    }
    ::close(file);
  });
  try {
    const auto rendezvous = kiln::open_tcp_rendezvous(options(1, ntohs(address.sin_port)));
    rendezvous->rendezvous();
    (void)rendezvous->exchange("b");
  } catch (const kiln::Error& error) {
    if (std::string(error.what()).find("[rendezvous]") != 0) std::abort();
  }
  stranger.join();
  ::close(door);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  (size % 2 == 0 ? stranger_at_the_door : stranger_in_the_house)(data, size);
  return 0;
}
