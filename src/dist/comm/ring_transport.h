// Collectives over send_recv of any transport: the textbook's rings to compare with the libraries' own, for
// the study. Sums run in ring order and are rounded to the tensor's dtype at every stop; all ranks get the
// same bits in every run.
#pragma once

#include <memory>

#include "dist/comm/link_model.h"
#include "dist/comm/transport.h"

namespace kiln {

std::unique_ptr<Transport> make_ring_transport(std::unique_ptr<Transport> inner, Backend& backend,
                                               CommAlgorithm algorithm);
// What such a transport needs besides what the inner one needs.
Bytes ring_scratch(CommAlgorithm algorithm, const CommCall& call, int world);

}  // namespace kiln
