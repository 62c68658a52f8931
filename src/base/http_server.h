// A server of a few read-only pages on this machine, in a thread of its own, by default with the lowest
// priority: it must not slow down what it shows. Every answer closes its connection; requests and waits have
// limits, so that no client can hold the thread or its memory. The destructor returns at once, whatever
// clients do.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/http_request.h"

namespace kiln {

struct HttpResponse {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
};

struct HttpServerOptions {
  std::string host = "127.0.0.1";  // the address to listen on, in digits
  int port = 0;                    // 0: any that is free
  std::string policy = {};         // Content-Security-Policy of every answer
  double patience_s = 5;           // for a request to come whole, and then for its answer to be taken
  std::size_t connections = 32;    // at a time; more wait in the system's queue
  bool background = true;          // at the lowest priority: it has what other threads leave
};

class HttpServer {
 public:
  using Handler = std::function<HttpResponse(const HttpRequest&)>;

  // Error where the address cannot be had. `handler` is called by the server's thread; what it throws is 500.
  HttpServer(HttpServerOptions options, Handler handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const { return port_; }
  std::string url() const;  // "http://127.0.0.1:8600/"; of an address that means all, this machine's name

 private:
  struct Connection;
  void open();
  void serve();
  void accept_all();
  void receive(Connection& c) const;
  void answer(Connection& c) const;
  static void send(Connection& c);

  HttpServerOptions options_;
  Handler handler_;
  std::vector<std::string> names_;  // of this machine, where others may reach it
  int listener_ = -1, wake_ = -1, port_ = 0;
  std::vector<std::unique_ptr<Connection>> open_;
  std::thread thread_;
};

}  // namespace kiln
