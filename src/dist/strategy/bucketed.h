// What DDP and ZeRO have in common: gradients become ready parameter by parameter, buckets of them are sent
// on when they are complete, and always in the same order. A bucket that is ready before the one in front of
// it waits, so all ranks make the same calls even where the loss reached other parameters on each.
#pragma once

#include <limits>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "dist/comm/communicator.h"
#include "dist/strategy/bucket_observer.h"
#include "dist/strategy/buckets.h"
#include "dist/strategy/grad_tree.h"
#include "dist/strategy/strategy.h"

namespace kiln {

struct BucketOptions {
  double cap = 25e6;              // bytes; 0: every parameter by itself
  double share = 1;               // of all gradients, the most a bucket may be whatever the cap
  DType wire = DType::f32;        // bf16: fp32 gradients are rounded to it for the way, and summed in fp32
  bool as_ready = true;           // overlapping backward; else after it
  bool every_micro_step = false;  // else on the last one only
  int in_flight = 2;              // limited buckets; bounds the memory of their copies
  int chunks = 0;                 // above 0: micro-steps of a step, summed as grad_tree.h says

  static constexpr double kAll = std::numeric_limits<double>::infinity();
  static constexpr int kAnyNumber = std::numeric_limits<int>::max();
};

class BucketedStrategy : public Strategy {
 public:
  BucketedStrategy(RankContext& ctx, Communicator& comm, const BucketOptions& options)
      : ctx_(ctx), comm_(comm), options_(options) {}

  void attach(ParamStore& params) override;
  void refresh() override;
  void begin_step() override;
  void begin_micro_step(bool last) override;
  void end_micro_step() override;
  void grad_ready(Param& p) override;
  void finish_gradients() override;
  // Each rank sums the squares of its piece of every parameter, whichever of them it holds: the same numbers
  // in the same order for every strategy here, so that they all clip by the same bits.
  std::vector<Tensor> own_grads(const ParamStore& params) const override;
  void sum_over_ranks(const Tensor& numbers, std::string_view what) override;
  bool sums_ranks_first() const override { return options_.every_micro_step; }
  CommVolume volume() const override { return volume_; }
  // Even alone: a sum is started in one captured region and waited for in another.
  bool can_capture() const override { return false; }

  const std::vector<Bucket>& buckets() const { return buckets_; }
  const BucketOptions& options() const { return options_; }
  void observe(BucketObserver* observer) { observer_ = observer; }  // null: nobody

 protected:
  virtual void start(Bucket& b) = 0;          // queues its collective
  virtual void finish_bucket(Bucket& b) = 0;  // waits for it and puts the result in its place
  virtual void launched() {}                  // all that were ready are on their way

  bool settle_oldest();  // of those in flight; false where there is none
  std::span<const Bucket> not_launched() const { return std::span(buckets_).subspan(next_); }

  void wait(const CommHandle& handle);  // reports the duration to the observer
  Bucket* bucket_of(const Param& p);
  int64_t share(const Param& p) const { return p.padded / comm_.world(); }
  // slot (+)= src, row by row, cast where their dtypes differ.
  void put(const GradSlot& slot, const Tensor& src);
  DType wire_dtype() const;

  RankContext& ctx_;
  Communicator& comm_;
  BucketOptions options_;
  ParamStore* params_ = nullptr;
  std::vector<Bucket> buckets_;
  std::optional<GradTree> tree_;  // where the order of sums must be that of any number of ranks
  CommVolume volume_;
  BucketObserver* observer_ = nullptr;

 private:
  void open_micro_step();
  void set_ready(Param& p, Bucket& b);
  void launch();
  void flush();
  void settle_next();

  struct Place {
    int bucket;
    bool ready;
  };
  std::unordered_map<const Param*, Place> places_;
  bool active_ = true;       // gradients of this micro-step are sent
  bool open_ = false;        // and not all have been
  std::size_t next_ = 0;     // the bucket to send next
  std::size_t settled_ = 0;  // buckets before it are done
  int in_flight_ = 0;        // limited ones between the two
  int chunk_ = 0;            // the micro-step
};

}  // namespace kiln
