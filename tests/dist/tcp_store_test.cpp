#include "dist/comm/rendezvous/tcp_store.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>
#include <random>
#include <thread>

#include "base/error.h"

namespace kiln {
namespace {

TcpMeetingOptions options(int rank, int world, int port = 0) {
  TcpMeetingOptions o;
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

TEST(TcpMeeting, EveryRankGetsEveryText) {
  for (int round = 0; round < 5; ++round) {  // ranks come in another order each time
    const int world = 5;
    const auto first = open_tcp_meeting(options(0, world));
    const auto port = first->port();
    std::vector<std::future<std::vector<std::string>>> others;
    for (int r = 1; r < world; ++r) {
      others.push_back(std::async(std::launch::async, [=] {
        std::mt19937 random(static_cast<unsigned>(17 * round + r));
        std::this_thread::sleep_for(std::chrono::milliseconds(random() % 20));
        const auto mine = open_tcp_meeting(options(r, world, port));
        mine->meet();
        (void)mine->exchange(cat("first of ", r));
        return mine->exchange(cat("second of ", r));
      }));
    }
    first->meet();
    const std::vector<std::string> firsts = first->exchange("first of 0");
    const std::vector<std::string> seconds = first->exchange("second of 0");
    for (int r = 0; r < world; ++r) EXPECT_EQ(firsts[static_cast<std::size_t>(r)], cat("first of ", r));
    for (auto& o : others) EXPECT_EQ(o.get(), seconds);
  }
}

TEST(TcpMeeting, ALatePeerIsWaitedFor) {
  const auto first = open_tcp_meeting(options(0, 2));
  const int port = first->port();
  std::thread late([port] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    const auto mine = open_tcp_meeting(options(1, 2, port));
    mine->meet();
  });
  first->meet();
  late.join();
}

TEST(TcpMeeting, MissingRanksAreNamed) {
  TcpMeetingOptions o = options(0, 3);
  o.timeout = std::chrono::milliseconds(200);
  const auto first = open_tcp_meeting(o);
  EXPECT_EQ(
      error_of([&] { first->meet(); }),
      cat("[rendezvous] rank 0 waited 200 ms at 127.0.0.1:", first->port(), "; missing: rank 1, rank 2"));
}

TEST(TcpMeeting, NobodyAtThePort) {
  const int port = [] {  // one that was free a moment ago
    return open_tcp_meeting(options(0, 2))->port();
  }();
  TcpMeetingOptions o = options(1, 2, port);
  o.timeout = std::chrono::milliseconds(200);
  EXPECT_EQ(error_of([&] { open_tcp_meeting(o)->meet(); }),
            cat("[rendezvous] rank 1 waited 200 ms for rank 0 at 127.0.0.1:", port, ": Connection refused"));
}

TEST(TcpMeeting, APortInUseIsToldInOneLine) {
  const auto first = open_tcp_meeting(options(0, 2));
  EXPECT_EQ(
      error_of([&] { (void)open_tcp_meeting(options(0, 2, first->port())); }),
      cat("[rendezvous] rank 0 cannot listen at 127.0.0.1:", first->port(), ": Address already in use"));
}

TEST(TcpMeeting, AnotherJobsRankIsTurnedAwayAndTheRightOneLetIn) {
  const auto first = open_tcp_meeting(options(0, 2));
  const int port = first->port();
  auto done = std::async(std::launch::async, [&] { first->meet(); });
  TcpMeetingOptions stranger = options(1, 2, port);
  stranger.token = "job-8";
  EXPECT_EQ(
      error_of([&] { open_tcp_meeting(stranger)->meet(); }),
      cat("[rendezvous] rank 1 was turned away at 127.0.0.1:", port, ": rank 0 belongs to another job"));
  TcpMeetingOptions more = options(1, 4, port);
  EXPECT_EQ(
      error_of([&] { open_tcp_meeting(more)->meet(); }),
      cat("[rendezvous] rank 1 was turned away at 127.0.0.1:", port, ": rank 0 waits for 2 ranks, not 4"));
  open_tcp_meeting(options(1, 2, port))->meet();
  done.get();
}

TEST(TcpMeeting, NoiseAtTheDoorIsIgnored) {
  const auto first = open_tcp_meeting(options(0, 2));
  const int port = first->port();
  auto done = std::async(std::launch::async, [&] { first->meet(); });
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
  open_tcp_meeting(options(1, 2, port))->meet();
  done.get();
}

TEST(TcpMeeting, AWrongAddressIsNamed) {
  TcpMeetingOptions o = options(0, 2);
  o.address = "203.0.113.1";  // nobody's
  EXPECT_EQ(error_of([&] { (void)open_tcp_meeting(o); }),
            "[rendezvous] rank 0 cannot listen at 203.0.113.1:0: Cannot assign requested address");
}

}  // namespace
}  // namespace kiln
