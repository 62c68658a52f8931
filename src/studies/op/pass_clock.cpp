#include "studies/op/pass_clock.h"

#include <algorithm>
#include <cmath>
#include <deque>

#include "autograd/tape.h"
#include "perf/timing/queued_timing.h"
#include "studies/ceilings.h"

namespace kiln {
namespace {

// A set of tensors and the calls on it. Its outputs live until its next turn, so those of two sets do not
// share memory.
class TimedSet {
 public:
  TimedSet(RankContext& ctx, const OpCase& c, const CaseData& data, const BenchForm& form, DType dtype)
      : ctx_(ctx), case_(c), dtype_(dtype), setup_(ctx, c, data, dtype, form.wants) {}

  void begin(bool fresh_tape = true) {
    y_ = {};
    given_ = {};
    setup_.begin_step(fresh_tape);
  }
  void forward() {
    floor_ = ctx_.tape().size();
    y_ = case_.call(ctx_, setup_.arguments());
  }
  void make_gradients() {
    if (kept_.empty()) {  // the outputs' sizes are known by now
      const OpCase unit{
          case_.op, "dy", {{"dy", CaseInput::Kind::activation, {std::min<int64_t>(y_.numel(), 65536)}}}, {}};
      kept_ = setup_.upload_gradients(
          y_, repeat_to(draw_repeating(unit, dtype_, ctx_.seed()).inputs[0], y_.numel()));
    }
    given_ = {};
    for (const Tensor& t : kept_) given_.push_back(ctx_.clone(t));
  }
  void backward() { setup_.backward(y_, std::move(given_), floor_); }

 private:
  RankContext& ctx_;
  const OpCase& case_;
  DType dtype_;
  CaseSetup setup_;
  CaseOutputs y_;
  int floor_ = 0;                        // nodes that other sets have on the tape below
  SmallVector<Tensor, 2> kept_, given_;  // gradients of the outputs: drawn once, and the tape's own copies
};

}  // namespace

int sets_to_rotate(double bytes, double cache) {
  constexpr double kFarOver = 4;  // a cache does not forget in order
  constexpr int kMost = 32;
  if (!(bytes > 0)) return 1;
  return static_cast<int>(std::clamp(std::ceil(kFarOver * cache / bytes), 1.0, double{kMost}));
}

Timing time_form(RankContext& ctx, const OpCase& c, const CaseData& data, const BenchForm& form,
                 const BenchRow& row, const TimingOptions& options) {
  const bool gpu = ctx.device().type == DeviceType::cuda;
  const bool backward = form.pass == Pass::backward;
  const int count = gpu ? sets_to_rotate(row.cost.bytes, cache_bytes(ctx.device())) : 1;
  std::deque<TimedSet> sets;
  for (int i = 0; i < count; ++i) sets.emplace_back(ctx, c, data, form, row.dtype);
  auto begin_all = [&] {  // leaves come before any op
    for (std::size_t i = 0; i < sets.size(); ++i) sets[i].begin(i == 0);
  };
  auto prepare_backward = [&] {  // of all sets: by the time one goes back, the others have had the cache
    begin_all();
    for (TimedSet& set : sets) {
      set.forward();
      set.make_gradients();
    }
  };
  Timing timing;
  if (gpu) {
    timing = time_queued(
        ctx,
        [&](const TimedCall& timed) {
          backward ? prepare_backward() : begin_all();
          const auto all = [&] {  // the tape's last node is the last set's
            for (auto set = sets.rbegin(); set != sets.rend(); ++set)
              backward ? set->backward() : set->forward();
          };
          timed(all, count);
        },
        options);
  } else {
    TimedSet& set = sets.front();
    TimedWork work{[&] { backward ? set.backward() : set.forward(); }, [&] { set.begin(); },
                   [&] { ctx.synchronize(); }};
    if (backward) work.prepare = prepare_backward;
    timing = time_work(work, options);
  }
  for (TimedSet& set : sets) set.begin();  // drops what the tape holds before the arguments go
  return timing;
}

}  // namespace kiln
