// The transports by name, in one table: what carries the collectives of a run's ranks.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dist/comm/mpi_process.h"
#include "dist/comm/nccl_transport.h"

namespace kiln {

// What a rank that is a process makes its transport from.
struct TransportPlace {
  Backend& backend;
  MpiProcess* mpi;                              // null where the ranks were started without it
  std::unique_ptr<NcclRendezvous>& rendezvous;  // made over TCP there; must outlive the transport
  MpiOptions options;
};

struct TransportRow {
  std::string_view name;
  bool processes;            // each rank is one, started by `kiln run` or its like; else a thread of this one
  bool needs_mpi;            // for the rendezvous, whatever launcher is used
  ReductionOrder reduction;  // the default
  bool reduction_in_scratch;  // CommOptions: where sums are to be made in the order of ranks
  std::string (*why_not)();   // on this machine; empty: it can carry a run
  std::unique_ptr<Transport> (*make)(const TransportPlace&);  // null: of threads
};

// threads, mpi, nccl.
std::vector<std::string_view> transport_names(bool with_auto = false);  // auto: as the ranks were started
std::string transport_list();                                           // "threads, mpi or nccl"
std::vector<std::string_view> transports_here();                        // those that can run on this machine
const TransportRow& find_transport(std::string_view name);              // Error(usage) with the names

}  // namespace kiln
