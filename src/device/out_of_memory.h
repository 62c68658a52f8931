// Tells an error of the allocator from every other: in a bench the one is a row, the other a failure.
#pragma once

#include "device/allocator.h"

namespace kiln::cli {

class OutOfMemory final : public AllocObserver {
 public:
  void on_alloc_event(const AllocEvent& e) override {
    happened = happened || e.kind == AllocEvent::Kind::out_of_memory;
  }
  bool happened = false;
};

}  // namespace kiln::cli
