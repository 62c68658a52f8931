// Recognises out-of-memory errors of the allocator: in a bench such an error is a row, any other a failure.
#pragma once

#include "device/allocator.h"

namespace kiln {

class OutOfMemory final : public AllocObserver {
 public:
  void on_alloc_event(const AllocEvent& e) override {
    happened = happened || e.kind == AllocEvent::Kind::out_of_memory;
  }
  bool happened = false;
};

}  // namespace kiln
