// What the CPU and meta share: one implicit stream, in order, finished when the call returns.
#pragma once

#include <chrono>

#include "base/error.h"
#include "device/backend.h"

namespace kiln {

// Work is done when its call returns, so the clock at record() is the time the device passed it.
class HostTimingEvent final : public TimingEvent {
 public:
  void record(Stream) override { at_ = std::chrono::steady_clock::now(); }
  double elapsed_ms(const TimingEvent& earlier) const override {
    const auto& from = dynamic_cast<const HostTimingEvent&>(earlier);
    return std::chrono::duration<double, std::milli>(at_ - from.at_).count();
  }

 private:
  std::chrono::steady_clock::time_point at_;
};

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
  std::unique_ptr<TimingEvent> make_timing_event() override { return std::make_unique<HostTimingEvent>(); }
  void hold(Stream, double) override {}
  bool can_capture() const override { return false; }
  std::unique_ptr<DeviceGraph> capture(Stream, const std::function<void()>&) override {
    throw Error("this device runs eagerly: there is nothing to capture");
  }
};

}  // namespace kiln
