// The server of kiln's pages, asked through plain sockets: what is no request, is for another host, is too
// large or too slow, gets its answer, and others get theirs meanwhile.
#include "base/http_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>

#include "base/error.h"

namespace kiln {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

class Client {
 public:
  explicit Client(int port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    const timeval patience{10, 0};  // a server that never answers fails the test, and does not hang it
    (void)::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  }
  ~Client() { ::close(fd_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool connected() const { return connected_; }
  void send(std::string_view text) const { (void)!::send(fd_, text.data(), text.size(), MSG_NOSIGNAL); }
  std::string read_all() const {
    std::string text;
    char piece[4096];
    for (ssize_t n = 0; (n = ::recv(fd_, piece, sizeof piece, 0)) > 0;)
      text.append(piece, static_cast<std::size_t>(n));
    return text;
  }

 private:
  int fd_;
  bool connected_ = false;
};

HttpResponse hello(const HttpRequest& r) {
  if (r.path == "/") return {200, "text/html", "<p>hello</p>"};
  if (r.path == "/large") return {200, "text/plain", std::string(std::size_t{8} << 20, 'x')};
  if (r.path == "/broken") throw Error("something inside");
  return {404, "text/plain", {}};
}

std::string ask(const HttpServer& server, const std::string& request) {
  const Client client(server.port());
  client.send(request);
  return client.read_all();
}

int status_of(const std::string& answer) {
  return answer.starts_with("HTTP/1.1 ") ? std::stoi(answer.substr(9, 3)) : 0;
}

std::string get(const std::string& target, const std::string& host = "127.0.0.1") {
  return "GET " + target + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n";
}

TEST(HttpServer, AnswersAGetWithItsHeaders) {
  const HttpServer server({.policy = "default-src 'none'"}, hello);
  const std::string answer = ask(server, get("/?x=1"));
  EXPECT_EQ(status_of(answer), 200);
  for (const char* line :
       {"Content-Length: 12\r\n", "Content-Security-Policy: default-src 'none'\r\n",
        "X-Content-Type-Options: nosniff\r\n", "Connection: close\r\n", "\r\n\r\n<p>hello</p>"})
    EXPECT_NE(answer.find(line), std::string::npos) << line;
  EXPECT_EQ(server.url(), cat("http://127.0.0.1:", server.port(), "/"));
}

TEST(HttpServer, RefusesWhatIsNoGetOfAPage) {
  const HttpServer server({}, hello);
  EXPECT_EQ(status_of(ask(server, get("/no"))), 404);
  EXPECT_EQ(status_of(ask(server, get("/../../etc/passwd"))), 404);
  EXPECT_EQ(status_of(ask(server, get("/%2e%2e/etc/passwd"))), 404);
  EXPECT_EQ(status_of(ask(server, "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")), 405);
  EXPECT_EQ(status_of(ask(server, "GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n")), 413);
  EXPECT_EQ(status_of(ask(server, "GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")),
            413);
  EXPECT_EQ(status_of(ask(server, "GET / HTTP/1.1\r\n\r\n")), 400);                                // no host
  EXPECT_EQ(status_of(ask(server, "GET / HTTP/1.1\r\nHost: a\r\nHost: localhost\r\n\r\n")), 400);  // two
  EXPECT_EQ(status_of(ask(server, "GET http://127.0.0.1/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")), 400);
  EXPECT_EQ(status_of(ask(server, "GET / HTTP/2.0\r\nHost: 127.0.0.1\r\n\r\n")), 505);
  EXPECT_EQ(status_of(ask(server, "GET / HTTP/1.1\r\nHost: localhost\r\nno colon\r\n\r\n")), 400);
  EXPECT_EQ(status_of(ask(server, "GET / HTTP/1.1\r\nHost: localhost\r\nX: a\x01z\r\n\r\n")), 400);
  EXPECT_EQ(status_of(ask(server, "GET /a b HTTP/1.1\r\nHost: localhost\r\n\r\n")), 400);
  EXPECT_EQ(status_of(ask(server, std::string("\x16\x03\x01\x02\x00", 5))), 400);  // TLS
  EXPECT_EQ(status_of(ask(server, "GET /" + std::string(9000, 'a'))), 431);
  EXPECT_EQ(status_of(ask(server, get("/broken"))), 500);
  EXPECT_EQ(status_of(ask(server, get("/"))), 200);  // and still serves
}

// A name that another site has pointed at 127.0.0.1.
TEST(HttpServer, AnswersOnlyToItsOwnHost) {
  const HttpServer server({}, hello);
  for (const char* host : {"127.0.0.1", "localhost", "LocalHost:8600", "[::1]:80", "127.0.0.1:1"})
    EXPECT_EQ(status_of(ask(server, get("/", host))), 200) << host;
  for (const char* host : {"evil.example", "evil.example:8600", "localhost.evil.example",
                           "127.0.0.1.evil.example", "127.0.0.1:x", "[::1", "localhost:", "[evil.example]"})
    EXPECT_EQ(status_of(ask(server, get("/", host))), 421) << host;
}

TEST(HttpServer, TakesARequestInPieces) {
  const HttpServer server({}, hello);
  const Client client(server.port());
  for (const char* piece : {"GE", "T / HT", "TP/1.1\r\nHo", "st: localhost\r", "\n\r", "\n"}) {
    client.send(piece);
    ::usleep(5000);
  }
  EXPECT_EQ(status_of(client.read_all()), 200);
}

TEST(HttpServer, SlowClientsHoldNobodyUp) {
  const HttpServer server({.patience_s = 5, .background = false}, hello);
  std::vector<std::unique_ptr<Client>> slow;
  for (int i = 0; i < 20; ++i) slow.push_back(std::make_unique<Client>(server.port()));
  for (const auto& c : slow) c->send("GET / HTTP/1.1\r\n");
  const Client never_reads(server.port());
  never_reads.send(get("/large"));
  const Clock::time_point begin = Clock::now();
  EXPECT_EQ(status_of(ask(server, get("/"))), 200);
  EXPECT_LT(seconds_since(begin), 2);  // and not the five of a client's patience
}

TEST(HttpServer, AClientThatTakesTooLongIsLeft) {
  const HttpServer server({.patience_s = 0.2, .background = false}, hello);
  const Client slow(server.port());
  slow.send("GET / HTTP/1.1\r\n");
  const Clock::time_point begin = Clock::now();
  EXPECT_EQ(slow.read_all(),
            "");  // the connection is closed, and the ten seconds of read_all are not waited for
  EXPECT_LT(seconds_since(begin), 5);
}

TEST(HttpServer, MoreClientsThanConnectionsAreAllAnswered) {
  const HttpServer server({.patience_s = 0.3, .connections = 4, .background = false}, hello);
  std::vector<std::unique_ptr<Client>> many;
  for (int i = 0; i < 30; ++i) many.push_back(std::make_unique<Client>(server.port()));
  for (std::size_t i = 10; i < many.size(); ++i) many[i]->send(get("/"));  // ten never say anything
  for (std::size_t i = 10; i < many.size(); ++i) EXPECT_EQ(status_of(many[i]->read_all()), 200) << i;
}

TEST(HttpServer, SendsAllOfALargeAnswer) {
  const HttpServer server({}, hello);
  const std::string answer = ask(server, get("/large"));
  EXPECT_EQ(answer.size() - answer.find("\r\n\r\n") - 4, std::size_t{8} << 20);
}

TEST(HttpServer, ATakenPortIsALine) {
  const HttpServer server({}, hello);
  try {
    const HttpServer second({.port = server.port()}, hello);
    FAIL() << "two servers on one port";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(cat("127.0.0.1:", server.port())), std::string::npos) << e.what();
    EXPECT_NE(e.hint().find("another"), std::string::npos) << e.hint();
  }
  EXPECT_THROW(HttpServer({.host = "evil.example"}, hello), Error);
}

TEST(HttpServer, EndsAtOnceWhateverClientsDo) {
  auto server = std::make_unique<HttpServer>(HttpServerOptions{}, hello);
  const Client silent(server->port()), half(server->port()), never_reads(server->port());
  half.send("GET / HT");
  never_reads.send(get("/large"));
  ::usleep(20000);
  const Clock::time_point begin = Clock::now();
  server.reset();
  EXPECT_LT(seconds_since(begin), 1);
}

TEST(HttpServer, ListensOnThisMachineAlone) {
  const HttpServer server({}, hello);
  sockaddr_in other{};
  other.sin_family = AF_INET;
  other.sin_port = htons(static_cast<uint16_t>(server.port()));
  ASSERT_EQ(::inet_pton(AF_INET, "127.0.0.2", &other.sin_addr),
            1);  // a loopback address that is not 127.0.0.1
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_NE(::connect(fd, reinterpret_cast<const sockaddr*>(&other), sizeof other), 0);
  ::close(fd);
}

}  // namespace
}  // namespace kiln
