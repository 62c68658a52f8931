#include "studies/watch/dashboard_options.h"

#include <string>

#include "base/error.h"

namespace kiln {

void add_dashboard_options(Options& o, DashboardOptions& d) {
  o.opt("--dashboard", d.port, between(0, 65535), "serve a page of the run on this port; 0: any that is free")
      .value("[PORT]")
      .alone(std::to_string(DashboardPlace().port))
      .unset("none; 8600 without a PORT")
      .not_in_config();
  o.opt("--dashboard-host", d.host, "address of that page; 0.0.0.0: for all who can reach this machine")
      .value("ADDRESS")
      .not_in_config();
}

std::unique_ptr<Dashboard> open_dashboard(const DashboardOptions& d, const std::string& run,
                                          bool background) {
  if (!d.port && d.host != DashboardPlace().host)
    throw Error("--dashboard-host belongs to --dashboard, which is not given", "add --dashboard",
                ErrorKind::usage);
  if (!d.port) return nullptr;
  return std::make_unique<Dashboard>(run, DashboardPlace{d.host, *d.port, background});
}

}  // namespace kiln
