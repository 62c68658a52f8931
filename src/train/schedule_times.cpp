#include "train/schedule_times.h"

#include "base/error.h"

namespace kiln {
namespace {

using Kind = ScheduleEvent::Kind;

class Walk {
 public:
  Walk(const RankSchedule& schedule, const OpTimeOf& op_time, int64_t wire, const CallSeconds& tensor)
      : schedule_(schedule), op_time_(op_time), wire_(wire), tensor_(tensor) {}

  ScheduleTimes all() {
    for (const ScheduleEvent& e : schedule_.events) take(e);
    close();
    return std::move(out_);
  }

 private:
  MicroStepTimes& now() { return out_.micro_steps.back(); }
  BusyTime& busy() { return finishing_ ? out_.update : now().busy; }
  double here() { return busy().total(); }

  void take(const ScheduleEvent& e) {
    switch (e.kind) {
      case Kind::micro_step:
        close();
        out_.micro_steps.emplace_back();
        last_use_ = {};
        return;
      case Kind::op:
        return op(schedule_.ops[e.index]);
      case Kind::use:
        return use(schedule_.uses[e.index]);
      case Kind::gradient:
        return gradient(schedule_.weights[e.index]);
      case Kind::tensor_call:
        busy().tensor += 1e6 * seconds_of(schedule_.tensor_calls[e.index], tensor_);
        return;
      case Kind::data_call:
        if (finishing_) (updated_ ? out_.updated : out_.finishing).push_back(schedule_.data_calls[e.index]);
        return;
      case Kind::gradients:
        close();
        finishing_ = true;
        return;
      case Kind::updated:
        updated_ = true;
        return;
    }
  }

  void op(const TimedOp& op) {
    const OpTime t = op_time_(op);
    BusyTime& b = busy();
    if (op.pass == Pass::backward && !finishing_ && now().compute.backward_begin == 0)
      now().compute.backward_begin = here();
    (t.compute_bound ? b.compute : b.memory) += t.us;
    b.gaps += t.gap_us;
  }

  // Uses of one weight behind each other are one window.
  void use(const WeightUse& u) {
    const ScheduledWeight& w = schedule_.weights[u.weight];
    if (!w.sharded || finishing_) return;
    const std::pair<std::size_t, DType> which{u.weight, u.as};
    if (last_use_ == which) return;
    last_use_ = which;
    open(w.name, std::string(u.phase), w.padded * static_cast<int64_t>(size_of(u.as)));
  }

  void gradient(const ScheduledWeight& w) {
    if (finishing_) return;
    const int64_t bytes = w.padded * wire_;
    if (!w.sharded) {
      now().compute.gradients.push_back({w.name, bytes, w.offset, here()});
      return;
    }
    if (now().windows.empty() || now().windows.back().scatter_bytes > 0) open(w.name, "backward", 0);
    now().windows.back().scatter_bytes = bytes;
  }

  void open(const std::string& weight, const std::string& phase, int64_t bytes) {
    end_window();
    if (now().windows.empty()) now().head = here();
    now().windows.push_back({weight, phase, bytes, 0, 0});
    window_begin_ = here();
  }

  void end_window() {
    if (!now().windows.empty()) now().windows.back().compute = here() - window_begin_;
  }

  void close() {
    if (finishing_ || out_.micro_steps.empty()) return;
    end_window();
    now().compute.backward_end = now().compute.end = here();
    if (now().windows.empty()) now().head = here();
  }

  const RankSchedule& schedule_;
  const OpTimeOf& op_time_;
  const int64_t wire_;
  const CallSeconds& tensor_;
  ScheduleTimes out_;
  std::optional<std::pair<std::size_t, DType>> last_use_;
  double window_begin_ = 0;
  bool finishing_ = false, updated_ = false;
};

}  // namespace

BusyTime& BusyTime::operator+=(const BusyTime& b) {
  compute += b.compute;
  memory += b.memory;
  gaps += b.gaps;
  tensor += b.tensor;
  return *this;
}

OpTimeOf op_times_by(const TimeModel& model, double share) {
  return [&model, share](const TimedOp& op) {
    const Rates& r = model.rates();
    OpTime t;
    t.us = 1e6 * model.seconds(op) / share;
    t.compute_bound = op.cost.flops > 0 && op.cost.flops / r.flops >= op.cost.bytes / r.bytes;
    if (model.calibrated()) t.gap_us = 1e6 * model.hardware().calibration->dispatch;
    return t;
  };
}

ScheduleTimes times_of(const RankSchedule& schedule, const OpTimeOf& op_time, int64_t wire,
                       const CallSeconds& tensor_seconds) {
  return Walk(schedule, op_time, wire, tensor_seconds).all();
}

std::vector<double> repeats_of(std::size_t recorded, int micro_steps) {
  std::vector<double> repeats(recorded, 1.0);
  if (recorded == 0 || static_cast<int>(recorded) > micro_steps)
    throw Error(cat(recorded, " micro-steps were recorded of ", micro_steps));
  if (static_cast<int>(recorded) == micro_steps) return repeats;
  repeats[recorded > 1 ? 1 : 0] += micro_steps - static_cast<double>(recorded);
  return repeats;
}

double seconds_of(const GroupCall& call, const CallSeconds& seconds) {
  return seconds(name_of(call.what), call.bytes);
}

}  // namespace kiln
