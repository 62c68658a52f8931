// --dashboard and --dashboard-host, of kiln train and kiln watch.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/options.h"
#include "studies/watch/dashboard.h"

namespace kiln {

struct DashboardOptions {
  std::optional<int> port;  // empty: no page
  std::string host = DashboardPlace().host;
};

void add_dashboard_options(Options& o, DashboardOptions& d);

// The page of a run; null where none is asked for. `background`: the run is this process'.
std::unique_ptr<Dashboard> open_dashboard(const DashboardOptions& d, const std::string& run, bool background);

}  // namespace kiln
