#include "dist/launch/transports.h"

#include "base/error.h"
#include "base/options.h"
#include "device/gpu_info.h"
#include "dist/launch/launch.h"

namespace kiln {
namespace {

std::string why_no_mpi() {
  if (!mpi_built_in()) return "this kiln was built without MPI";
  return find_mpirun().empty() ? "mpirun was not found on PATH" : "";
}

std::string why_no_nccl() {
  if (!nccl_built_in()) return "this kiln was built without NCCL";
  std::string why;
  (void)nccl_library(&why);
  if (why.empty() && list_gpus(&why).empty() && why.empty()) why = "there is no GPU";
  return why;
}

const TransportRow kRows[] = {
    {"threads", false, false, ReductionOrder::deterministic, false, [] { return std::string(); }, nullptr},
    {"mpi", true, true, ReductionOrder::deterministic, false, why_no_mpi,
     [](const TransportPlace& p) { return p.mpi->transport(p.backend, p.options); }},
    {"nccl", true, false, ReductionOrder::library, true, why_no_nccl,
     [](const TransportPlace& p) {
       if (p.mpi != nullptr) p.rendezvous = rendezvous_over_mpi(*p.mpi, p.options);
       return make_nccl_transport(p.backend, *p.rendezvous, p.options);
     }},
};

}  // namespace

std::vector<std::string_view> transport_names(bool with_auto) {
  std::vector<std::string_view> names;
  for (const TransportRow& r : kRows) names.push_back(r.name);
  if (with_auto) names.emplace_back("auto");
  return names;
}

std::string transport_list() {
  std::vector<std::string> names;
  for (const TransportRow& r : kRows) names.emplace_back(r.name);
  return or_list(names);
}

std::vector<std::string_view> transports_here() {
  std::vector<std::string_view> names;
  for (const TransportRow& r : kRows) {
    if (r.why_not().empty()) names.push_back(r.name);
  }
  return names;
}

const TransportRow& find_transport(std::string_view name) {
  for (const TransportRow& r : kRows) {
    if (r.name == name) return r;
  }
  throw Error(cat("there is no transport '", name, "'"), cat("it is ", transport_list()), ErrorKind::usage);
}

}  // namespace kiln
