// Owners of what a backend hands out by hand, so that an error in the middle of a constructor leaks nothing.
#pragma once

#include <cstddef>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "device/backend.h"

namespace kiln {

class PinnedMemory {
 public:
  PinnedMemory(Backend& backend, Bytes bytes)
      : backend_(&backend), data_(static_cast<std::byte*>(backend.allocate_pinned(bytes.value))) {
    if (data_ == nullptr) throw Error(cat("no pinned host memory for ", human(bytes)));
  }
  PinnedMemory(PinnedMemory&& o) noexcept : backend_(o.backend_), data_(std::exchange(o.data_, nullptr)) {}
  PinnedMemory& operator=(PinnedMemory&&) = delete;
  ~PinnedMemory() {
    if (data_ != nullptr) backend_->release_pinned(data_);
  }
  std::byte* data() const { return data_; }

 private:
  Backend* backend_;
  std::byte* data_;
};

class OwnedEvent {
 public:
  explicit OwnedEvent(Backend& backend) : backend_(&backend), event_(backend.make_event()) {}
  OwnedEvent(OwnedEvent&& o) noexcept : backend_(std::exchange(o.backend_, nullptr)), event_(o.event_) {}
  OwnedEvent& operator=(OwnedEvent&&) = delete;
  ~OwnedEvent() {
    if (backend_ != nullptr) backend_->destroy(event_);
  }
  operator Event() const { return event_; }  // NOLINT(google-explicit-constructor): it is one

 private:
  Backend* backend_;
  Event event_;
};

class OwnedStream {
 public:
  explicit OwnedStream(Backend& backend) : backend_(backend), stream_(backend.make_stream()) {}
  OwnedStream(const OwnedStream&) = delete;
  OwnedStream& operator=(const OwnedStream&) = delete;
  ~OwnedStream() { backend_.destroy(stream_); }
  operator Stream() const { return stream_; }  // NOLINT(google-explicit-constructor): it is one

 private:
  Backend& backend_;
  Stream stream_;
};

}  // namespace kiln
