// The page of a run, served while it trains: by the training process itself, or by kiln watch.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "base/http_server.h"
#include "studies/watch/run_reader.h"

namespace kiln {

// Where the page is to be. 127.0.0.1: for this machine alone.
struct DashboardPlace {
  std::string host = "127.0.0.1";
  int port = 8600;         // 0: any that is free
  bool background = true;  // it has what the other threads of this process leave
};

// What /data.json says: the summary, and the curves by their names.
std::string dashboard_data(const RunReader& reader);

class Dashboard {
 public:
  // Error where the place cannot be had. Reads the folder in the server's thread and touches nothing else, so
  // that a training run in this process does not notice it.
  Dashboard(const std::string& run, const DashboardPlace& place);

  std::string url() const { return server_->url(); }

 private:
  HttpResponse answer(const HttpRequest& request);

  RunReader reader_;
  std::string data_;  // of the last reading
  std::chrono::steady_clock::time_point read_at_;
  std::unique_ptr<HttpServer> server_;  // the last member: its thread uses the others
};

}  // namespace kiln
