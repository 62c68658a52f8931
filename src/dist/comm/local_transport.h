// Transports without other ranks: a run of one, and the meta device, where memory is counted and nothing
// moves.
#pragma once

#include <memory>

#include "dist/comm/comm_options.h"
#include "dist/comm/transport.h"

namespace kiln {

std::unique_ptr<Transport> make_alone_transport(Backend& backend);
// Rank `rank` of `world` without the others; asks for the memory that the transport it stands for would.
std::unique_ptr<Transport> make_meta_transport(int rank, int world, const CommOptions& options);

}  // namespace kiln
