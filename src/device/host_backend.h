// What the CPU and meta share: one implicit stream, in order, finished when the call returns.
#pragma once

#include "base/error.h"
#include "device/backend.h"

namespace kiln {

class HostBackend : public Backend {
 public:
  Stream make_stream() override { return {}; }
  void destroy(Stream) override {}
  Event make_event() override { return {}; }
  void destroy(Event) override {}
  void record(Event, Stream) override {}
  void wait(Stream, Event) override {}
  void synchronize(Event) override {}
  void synchronize(Stream) override {}
  bool can_capture() const override { return false; }
  std::unique_ptr<DeviceGraph> capture(Stream, const std::function<void()>&) override {
    throw Error("this device runs eagerly: there is nothing to capture");
  }
};

}  // namespace kiln
