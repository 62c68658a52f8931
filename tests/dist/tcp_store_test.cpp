#include "dist/comm/rendezvous/tcp_store.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <random>
#include <thread>
#include <vector>

#include "base/error.h"

namespace kiln {
namespace {

TcpRendezvousOptions options(int rank, int world, int port = 0) {
  TcpRendezvousOptions o;
  o.rank = rank;
  o.world = world;
  o.port = port;
  o.token = "job-7";
  o.timeout = std::chrono::seconds(20);
  return o;
}

template <class F>
std::string error_of(F f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_FALSE(e.hint().empty()) << e.what();
    return e.what();
  }
  return "no error";
}

TEST(TcpRendezvous, EveryRankGetsEveryText) {
  for (int round = 0; round < 5; ++round) {  // ranks come in another order each time
    const int world = 5;
    const auto first = open_tcp_rendezvous(options(0, world));
    const auto port = first->port();
    std::vector<std::future<std::vector<std::string>>> others;
    for (int r = 1; r < world; ++r) {
      others.push_back(std::async(std::launch::async, [=] {
        std::mt19937 random(static_cast<unsigned>(17 * round + r));
        std::this_thread::sleep_for(std::chrono::milliseconds(random() % 20));
        const auto mine = open_tcp_rendezvous(options(r, world, port));
        mine->rendezvous();
        (void)mine->exchange(cat("first of ", r));
        return mine->exchange(cat("second of ", r));
      }));
    }
    first->rendezvous();
    const std::vector<std::string> firsts = first->exchange("first of 0");
    const std::vector<std::string> seconds = first->exchange("second of 0");
    for (int r = 0; r < world; ++r) EXPECT_EQ(firsts[static_cast<std::size_t>(r)], cat("first of ", r));
    for (auto& o : others) EXPECT_EQ(o.get(), seconds);
  }
}

TEST(TcpRendezvous, ALatePeerIsWaitedFor) {
  const auto first = open_tcp_rendezvous(options(0, 2));
  const int port = first->port();
  std::atomic<bool> came{false};
  std::thread late([&came, port] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    came = true;
    const auto mine = open_tcp_rendezvous(options(1, 2, port));
    mine->rendezvous();
  });
  first->rendezvous();
  EXPECT_TRUE(came) << "the first rank did not wait";
  late.join();
}

TEST(TcpRendezvous, MissingRanksAreNamed) {
  TcpRendezvousOptions o = options(0, 3);
  o.timeout = std::chrono::milliseconds(200);
  const auto first = open_tcp_rendezvous(o);
  EXPECT_EQ(
      error_of([&] { first->rendezvous(); }),
      cat("[rendezvous] rank 0 waited 200 ms at 127.0.0.1:", first->port(), "; missing: rank 1, rank 2"));
}

TEST(TcpRendezvous, NobodyAtThePort) {
  const int port = [] {  // one that was free a moment ago
    return open_tcp_rendezvous(options(0, 2))->port();
  }();
  TcpRendezvousOptions o = options(1, 2, port);
  o.timeout = std::chrono::milliseconds(200);
  EXPECT_EQ(error_of([&] { open_tcp_rendezvous(o)->rendezvous(); }),
            cat("[rendezvous] rank 1 waited 200 ms for rank 0 at 127.0.0.1:", port, ": Connection refused"));
}

TEST(TcpRendezvous, APortInUseIsToldInOneLine) {
  const auto first = open_tcp_rendezvous(options(0, 2));
  EXPECT_EQ(
      error_of([&] { (void)open_tcp_rendezvous(options(0, 2, first->port())); }),
      cat("[rendezvous] rank 0 cannot listen at 127.0.0.1:", first->port(), ": Address already in use"));
}

TEST(TcpRendezvous, AnotherJobsRankIsTurnedAwayAndTheRightOneLetIn) {
  const auto first = open_tcp_rendezvous(options(0, 2));
  const int port = first->port();
  auto done = std::async(std::launch::async, [&] { first->rendezvous(); });
  TcpRendezvousOptions stranger = options(1, 2, port);
  stranger.token = "job-8";
  EXPECT_EQ(error_of([&] { open_tcp_rendezvous(stranger)->rendezvous(); }),
            cat("[rendezvous] rank 1 was rejected at 127.0.0.1:", port, ": rank 0 belongs to another job"));
  TcpRendezvousOptions more = options(1, 4, port);
  EXPECT_EQ(error_of([&] { open_tcp_rendezvous(more)->rendezvous(); }),
            cat("[rendezvous] rank 1 was rejected at 127.0.0.1:", port, ": rank 0 waits for 2 ranks, not 4"));
  open_tcp_rendezvous(options(1, 2, port))->rendezvous();
  done.get();
}

TEST(TcpRendezvous, NoiseAtTheDoorIsIgnored) {
  const auto first = open_tcp_rendezvous(options(0, 2));
  const int port = first->port();
  auto done = std::async(std::launch::async, [&] { first->rendezvous(); });
  for (int i = 0; i < 3; ++i) {
    const int s = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_port = htons(static_cast<uint16_t>(port));
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(::connect(s, reinterpret_cast<sockaddr*>(&a), sizeof a), 0);
    const std::string words = i == 0 ? "" : std::string(i == 1 ? 3 : 4000, 'x');
    (void)!::write(s, words.data(), words.size());
    ::close(s);
  }
  open_tcp_rendezvous(options(1, 2, port))->rendezvous();
  done.get();
}

sockaddr_in loopback(int port) {
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_port = htons(static_cast<uint16_t>(port));
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return a;
}

// Connections that are closed when the test is over.
class Connections {
 public:
  ~Connections() {
    for (const int s : sockets_) ::close(s);
  }
  int to(int port, int flags = 0) {
    const sockaddr_in a = loopback(port);
    sockets_.push_back(::socket(AF_INET, SOCK_STREAM | flags, 0));
    (void)::connect(sockets_.back(), reinterpret_cast<const sockaddr*>(&a), sizeof a);
    return sockets_.back();
  }
  // A port whose queue of callers is full: the system drops what else comes, as a packet filter does.
  int full_port() {
    sockets_.push_back(::socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in a = loopback(0);
    socklen_t length = sizeof a;
    EXPECT_EQ(::bind(sockets_.back(), reinterpret_cast<sockaddr*>(&a), sizeof a), 0);
    EXPECT_EQ(::listen(sockets_.back(), 0), 0);
    EXPECT_EQ(::getsockname(sockets_.back(), reinterpret_cast<sockaddr*>(&a), &length), 0);
    const int port = ntohs(a.sin_port);
    for (int i = 0; i < 4; ++i) (void)to(port, SOCK_NONBLOCK);
    return port;
  }

 private:
  std::vector<int> sockets_;
};

TEST(TcpRendezvous, DroppedPacketsDoNotOutlastTheTimeOut) {
  Connections connections;
  const int port = connections.full_port();
  TcpRendezvousOptions o = options(1, 2, port);
  o.timeout = std::chrono::milliseconds(700);
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_EQ(
      error_of([&] { open_tcp_rendezvous(o)->rendezvous(); }),
      cat("[rendezvous] rank 1 waited 700 ms for rank 0 at 127.0.0.1:", port, ": Connection timed out"));
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(3));
}

TEST(TcpRendezvous, WhoAcceptsAndSaysNothingDoesNotOutlastTheTimeOut) {
  const int door = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in a = loopback(0);
  socklen_t length = sizeof a;
  ASSERT_EQ(::bind(door, reinterpret_cast<sockaddr*>(&a), sizeof a), 0);
  ASSERT_EQ(::listen(door, 8), 0);
  ASSERT_EQ(::getsockname(door, reinterpret_cast<sockaddr*>(&a), &length), 0);
  TcpRendezvousOptions o = options(1, 2, ntohs(a.sin_port));
  o.timeout = std::chrono::milliseconds(300);
  EXPECT_EQ(error_of([&] { open_tcp_rendezvous(o)->rendezvous(); }),
            cat("[rendezvous] what answers rank 1 at 127.0.0.1:", o.port, " is not rank 0"));
  ::close(door);
}

TEST(TcpRendezvous, StrangersDoNotDelayTheRanks) {
  constexpr int kWorld = 3;
  const auto first = open_tcp_rendezvous(options(0, kWorld));
  const int port = first->port();
  Connections strangers;
  for (int i = 0; i < 5; ++i) (void)strangers.to(port);  // silent
  for (int i = 0; i < 3; ++i)                            // another program
    EXPECT_EQ(::write(strangers.to(port), "GET / HTTP/1.1", 14), 14);
  const int slow = strangers.to(port);  // begins as kiln does, and is in no hurry
  EXPECT_EQ(::write(slow, "kil", 3), 3);
  const auto begun = std::chrono::steady_clock::now();
  std::vector<std::future<void>> others;
  for (int r = 1; r < kWorld; ++r)
    others.push_back(
        std::async(std::launch::async, [=] { open_tcp_rendezvous(options(r, kWorld, port))->rendezvous(); }));
  first->rendezvous();
  for (auto& o : others) o.get();
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(2));
}

TEST(TcpRendezvous, AHelloMayComeByteByByte) {
  const auto first = open_tcp_rendezvous(options(0, 2));
  auto done = std::async(std::launch::async, [&] { first->rendezvous(); });
  Connections connections;
  const int s = connections.to(first->port());
  std::string hello = std::string("kilnmeet") + std::string("\1\0\0\0\1\0\0\0\2\0\0\0", 12) + "job-7";
  hello.resize(84);
  for (const char c : hello) {
    ASSERT_EQ(::write(s, &c, 1), 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  done.get();
}

TEST(TcpRendezvous, AJobWithoutATokenOfItsOwnIsRefused) {
  TcpRendezvousOptions o = options(0, 2);
  o.token.clear();
  EXPECT_EQ(error_of([&] { (void)open_tcp_rendezvous(o); }), "[rendezvous] the job has no token");
  o.token = std::string(65, 'x');  // only its beginning would be compared
  EXPECT_EQ(error_of([&] { (void)open_tcp_rendezvous(o); }),
            "[rendezvous] the job's token has 65 bytes; expected at most 64");
}

TEST(TcpRendezvous, AnUnknownNameIsToldWithinTheTimeOut) {
  TcpRendezvousOptions o = options(1, 2, 1);
  o.address = "no-such-machine.invalid";
  o.timeout = std::chrono::milliseconds(500);
  const auto begun = std::chrono::steady_clock::now();
  const std::string error = error_of([&] { open_tcp_rendezvous(o)->rendezvous(); });
  EXPECT_NE(error.find("'no-such-machine.invalid'"), std::string::npos) << error;
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(2));
}

TEST(TcpRendezvous, AWrongAddressIsNamed) {
  TcpRendezvousOptions o = options(0, 2);
  o.address = "203.0.113.1";  // nobody's
  EXPECT_EQ(error_of([&] { (void)open_tcp_rendezvous(o); }),
            "[rendezvous] rank 0 cannot listen at 203.0.113.1:0: Cannot assign requested address");
}

}  // namespace
}  // namespace kiln
