#include "base/http_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/error.h"
#include "base/start_thread.h"

namespace kiln {
namespace {

using Clock = std::chrono::steady_clock;

std::string host_name() {
  char name[256] = "";
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

// What stands above every answer: nothing is kept, guessed at, framed, or said to other sites.
std::string head_of(const HttpResponse& r, const std::string& policy) {
  return cat("HTTP/1.1 ", r.status, " ", http_reason(r.status), "\r\nContent-Type: ", r.type,
             "\r\nContent-Length: ", r.body.size(), r.status == 405 ? "\r\nAllow: GET" : "",
             "\r\nContent-Security-Policy: ", policy,
             "\r\nX-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\nReferrer-Policy: no-referrer"
             "\r\nCross-Origin-Resource-Policy: same-origin\r\nCache-Control: no-store"
             "\r\nConnection: close\r\n\r\n");
}

}  // namespace

struct HttpServer::Connection {
  explicit Connection(int file, Clock::time_point until) : fd(file), deadline(until) {}
  ~Connection() { ::close(fd); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  int fd;
  Clock::time_point deadline;
  std::string in, out;
  std::size_t sent = 0;
  bool done = false;
  bool drains = false;  // all is sent; what the client still sends is read, or it would see a reset
};

HttpServer::HttpServer(HttpServerOptions options, Handler handler)
    : options_(std::move(options)), handler_(std::move(handler)) {
  if (options_.policy.empty()) options_.policy = "default-src 'none'";
  try {
    open();
    thread_ = start_thread("the page's server", [this] { serve(); });
  } catch (...) {
    if (listener_ >= 0) ::close(listener_);
    if (wake_ >= 0) ::close(wake_);
    throw;
  }
}

HttpServer::~HttpServer() {
  const uint64_t one = 1;
  (void)!::write(wake_, &one, sizeof one);
  thread_.join();
  open_.clear();
  ::close(listener_);
  ::close(wake_);
}

void HttpServer::open() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(options_.port));
  if (::inet_pton(AF_INET, options_.host.c_str(), &address.sin_addr) != 1)
    throw Error(cat("'", options_.host, "' is no IPv4 address of this machine"),
                "say 127.0.0.1 for this machine alone, 0.0.0.0 for all that can reach it", ErrorKind::usage);
  if ((ntohl(address.sin_addr.s_addr) >> 24) != 127) names_ = {host_name()};
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int yes = 1;
  if (listener_ >= 0) (void)::setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (listener_ < 0 || ::bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(listener_, 64) != 0) {
    const int why = errno;
    throw Error(cat("cannot serve a page on ", options_.host, ":", options_.port, ": ", std::strerror(why)),
                why == EADDRINUSE
                    ? "another program has that port; name another one, or 0 for any that is free"
                    : "name another port or host");
  }
  socklen_t size = sizeof address;
  (void)::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
  port_ = ntohs(address.sin_port);
  wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_ < 0) throw Error(cat("cannot serve a page: ", std::strerror(errno)));
}

std::string HttpServer::url() const {
  return cat("http://", options_.host == "0.0.0.0" ? host_name() : options_.host, ":", port_, "/");
}

void HttpServer::serve() {
  // Of this thread alone.
  if (options_.background) (void)::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), 19);
  std::vector<pollfd> watched;
  for (;;) {
    watched.assign({{wake_, POLLIN, 0}, {open_.size() < options_.connections ? listener_ : -1, POLLIN, 0}});
    for (const auto& c : open_)
      watched.push_back({c->fd, static_cast<short>(c->out.empty() || c->drains ? POLLIN : POLLOUT), 0});
    (void)::poll(watched.data(), watched.size(), open_.empty() ? -1 : 200);
    if (watched[0].revents != 0) return;
    for (std::size_t i = 0; i < open_.size(); ++i) {
      if (watched[i + 2].revents == 0) continue;
      if (open_[i]->out.empty() || open_[i]->drains)
        receive(*open_[i]);
      else
        send(*open_[i]);
    }
    const auto now = Clock::now();
    std::erase_if(open_, [&](const auto& c) { return c->done || now > c->deadline; });
    if (watched[1].revents != 0) accept_all();
  }
}

void HttpServer::accept_all() {
  const auto patience =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options_.patience_s));
  while (open_.size() < options_.connections) {
    const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return;
    open_.push_back(std::make_unique<Connection>(fd, Clock::now() + patience));
  }
}

void HttpServer::receive(Connection& c) const {
  char piece[4096];
  const ssize_t n = ::recv(c.fd, piece, sizeof piece, 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) {
    c.done = true;
    return;
  }
  if (c.drains) return;
  c.in.append(piece, static_cast<std::size_t>(n));
  answer(c);
}

void HttpServer::answer(Connection& c) const {
  ParsedRequest parsed = parse_http_request(c.in);
  if (parsed.status == 0) return;
  HttpResponse response;
  response.status = parsed.status;
  if (response.status == 200 && !is_our_host(parsed.request.host, names_)) response.status = 421;
  if (response.status == 200) {
    try {
      response = handler_(parsed.request);
    } catch (const std::exception&) {
      response = {500, "text/plain; charset=utf-8", {}};
    }
  }
  if (response.status != 200 && response.body.empty())
    response.body = cat(response.status, " ", http_reason(response.status), "\n");
  c.out = head_of(response, options_.policy) + response.body;
  c.deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                  std::chrono::duration<double>(options_.patience_s));
  send(c);
}

void HttpServer::send(Connection& c) {
  while (c.sent < c.out.size()) {
    const ssize_t n = ::send(c.fd, c.out.data() + c.sent, c.out.size() - c.sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) {
      c.done = true;
      return;
    }
    c.sent += static_cast<std::size_t>(n);
  }
  (void)::shutdown(c.fd, SHUT_WR);
  c.drains = true;
}

}  // namespace kiln
