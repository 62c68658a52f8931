// All parameters of one model on one rank, and the two flat buffers behind them: values and the gradient
// arena. Both are laid out in reverse execution order, the order in which backward completes gradients, each
// parameter padded to world x 16 bytes: a bucket, a shard and `.grad` are all plain ranges. Parameters that
// are frozen when the buffers are made come last, so that what is trained is one piece. Of a sharded model
// the shards come first, then, in the same order, the parameters every rank has whole.
#pragma once

#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

#include "autograd/param.h"
#include "autograd/precision.h"
#include "autograd/rank_context.h"

namespace kiln {

// How tensor-parallel ranks share a weight (model/partition.h).
enum class ParamRole : uint8_t {
  plain,   // every one has it whole
  column,  // rows of [out, in], so columns of the output: heads, or units of the hidden layer
  row,     // columns of [out, in]: the outputs are partial sums
  vocab,   // rows that belong to tokens
};

// Which part of the weights on disk a parameter is, view by view. The default: all of each.
struct ParamPart {
  struct Rows {
    int64_t first = 0, whole = 0;
  };
  ParamRole role = ParamRole::plain;
  std::vector<Rows> rows = {};                  // of each view; none: all rows are here
  int64_t first_column = 0, whole_columns = 0;  // 0: all columns are
};

struct ParamLayout {
  Precision precision = Precision::fp32;
  // Keep only this rank's 1/world of the values and gradients of every parameter is_sharded() names; a
  // strategy's hooks gather on use.
  bool sharded = false;
  // Keep whole values, but only this rank's part of every gradient; a strategy's hooks bring the memory that
  // backward writes into.
  bool sharded_grads = false;
  // For a model that is loaded and not trained: values alone, which start as zeros. Without gradients and low
  // halves an fp32 model takes half the memory, a bf16 one a quarter.
  bool inference = false;
  bool narrow_grads = false;  // see policy_of
  // Every parameter is padded to this many equal pieces, whatever the number of ranks, which divides it.
  int pieces = 1;
  // Neighbours that hold one model between them: rank = data rank x tensor_ranks + tensor rank. What is said
  // of ranks and world here is then among those that have the same part of it.
  int tensor_ranks = 1;
};

// What an optimizer's spans may be. An update that looks at each element by itself takes any ranges; one that
// looks at a matrix as such (an orthogonalised momentum, a factored second moment) takes parameters whole.
enum class SpanUnit : uint8_t { elements, matrices };

// One parameter as the optimizer sees it: flat ranges of equal length.
struct ParamSpan {
  std::string name;
  Tensor value;  // fp32, bf16, or the bf16 high half
  Tensor low;    // int16 low half; undefined unless split
  Tensor grad;
  bool decay;
  int64_t offset;  // elements, in this rank's flat buffers
  DType state;     // of its optimizer moments
  // Of the whole parameter. Where the unit is matrices the ranges begin with all of its elements, row by row,
  // and padding of zeros follows them.
  Shape shape;
};

// Which parameters of a sharded model are cut: the matrices of linear layers and embeddings. A norm's weight
// is a vector; to gather so few bytes would take longer than to keep them everywhere saves.
inline bool is_sharded(const Param& p) { return p.shape.rank() > 1; }

// Writes zeros into the rows of a gradient that no contribution reached: who sums or reads it whole does
// so after this. All rows count as touched from here on.
void zero_untouched_rows(RankContext& ctx, Param& p);

class ParamStore {
 public:
  // Parameters are added in execution order. The reference stays valid.
  Param& add(std::string name, Shape shape, ParamInit init, bool decay = true, ParamPart part = {});
  // A packed weight: several named row blocks in one buffer.
  Param& add_packed(std::string name, std::vector<ParamView> views, int64_t columns, bool decay = true,
                    ParamPart part = {});

  // Allocates the flat buffers and draws the initial values, except for inference, which will load them.
  void materialize(RankContext& ctx, const ParamLayout& layout = {});
  void draw_values(RankContext& ctx);  // keyed by the names that go to disk

  void begin_step();                        // every gradient range is untouched from here on
  void finish_gradients(RankContext& ctx);  // zeroes what no contribution reached

  void set_hooks(ParamHooks* hooks);

  // Drops the low halves of what other ranks update. Only an update reads them, so they are not needed; until
  // this is called they are whole, for code that loads or hands out weights.
  void keep_own_low(RankContext& ctx);

  std::deque<Param>& params() { return params_; }
  const std::deque<Param>& params() const { return params_; }
  const ParamPart& part(const Param& p) const;
  const Tensor& values() const { return values_; }
  const Tensor& low() const { return low_; }      // undefined unless bf16, and for inference
  const Tensor& grads() const { return grads_; }  // undefined for inference
  const ParamLayout& layout() const { return layout_; }
  PrecisionPolicy policy() const { return policy_of(layout_.precision, layout_.narrow_grads); }
  int64_t total() const { return total_; }              // elements, padded, whole model
  int64_t local_total() const { return local_total_; }  // of this rank's buffers
  int shards() const { return shards_; }
  // Among the ranks with the same part of the model: they split the batch, and what a strategy shards.
  int data_rank() const { return data_rank_; }
  int data_world() const { return data_world_; }
  std::vector<ParamSpan> spans() const { return spans(0, 1); }  // trainable parameters, in arena order
  // The same, cut into `world` equal pieces of each parameter: those of `rank`.
  std::vector<ParamSpan> spans(int rank, int world) const;
  // That piece of one parameter, in one of the flat buffers: a part of the whole, or what the buffer holds of
  // it where it holds one rank's pieces only.
  Tensor piece(const Tensor& flat, const Param& p, int rank, int world) const;

  // Those of the gradients that this rank adds to a sum over ranks: its shards, and on the first rank what
  // all have whole. Of an unsharded model: all.
  Tensor own_grads() const {
    const bool first = shards_ == 1 || data_rank_ == 0;
    return grads_.narrow(0, 0, first ? local_total_ : shard_total_);
  }
  // Of a sharded model, the gradients of the parameters every rank has whole.
  Tensor whole_grads() const { return grads_.narrow(0, shard_total_, local_total_ - shard_total_); }

  // This rank's flat piece of a parameter (the whole of it when not sharded).
  Tensor local_value(const Param& p) const { return range(values_, p); }
  Tensor local_grad(const Param& p) const { return range(grads_, p); }
  Tensor local_low(const Param& p) const { return range(low_, p); }
  // Of the flat parameter, the first element of this rank's piece.
  int64_t local_begin(const Param& p) const { return p.shards == 1 ? 0 : p.local() * data_rank_; }

 private:
  static Tensor range(const Tensor& flat, const Param& p) { return flat.narrow(0, p.offset, p.local()); }
  void lay_out();

  std::deque<Param> params_;
  std::unordered_map<const Param*, ParamPart> parts_;  // of those that are not whole
  ParamLayout layout_;
  int data_rank_ = 0, data_world_ = 1;
  int shards_ = 1;
  int64_t total_ = 0, local_total_ = 0, shard_total_ = 0;
  Tensor values_, low_, grads_;
};

}  // namespace kiln
