#include "dist/comm/event_passed.h"

#include "device/cuda/cuda_backend.h"

namespace kiln {

bool event_passed(Backend& backend, Event event) {
  auto* const cuda = dynamic_cast<CudaBackend*>(&backend);
  return cuda == nullptr || cuda->passed(event);
}

}  // namespace kiln
