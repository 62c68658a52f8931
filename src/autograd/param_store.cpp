#include "autograd/param_store.h"

#include <algorithm>
#include <numeric>

#include "autograd/init_weights.h"

namespace kiln {

Param& ParamStore::add(std::string name, Shape shape, ParamInit init, bool decay, ParamPart part) {
  ParamView whole{name, 0, shape[0], init};
  Param& p = params_.emplace_back();
  p.name = std::move(name);
  p.shape = shape;
  p.decay = decay;
  p.views.push_back(std::move(whole));
  if (part.role != ParamRole::plain) parts_.emplace(&p, std::move(part));
  return p;
}

Param& ParamStore::add_packed(std::string name, std::vector<ParamView> views, int64_t columns, bool decay,
                              ParamPart part) {
  int64_t rows = 0;
  for (const ParamView& v : views) {
    if (v.row_begin != rows)
      throw Error(cat("packed parameter ", name, ": view ", v.name, " does not start at row ", rows));
    rows += v.rows;
  }
  Param& p = params_.emplace_back();
  p.name = std::move(name);
  p.shape = {rows, columns};
  p.decay = decay;
  p.views = std::move(views);
  if (part.role != ParamRole::plain) parts_.emplace(&p, std::move(part));
  return p;
}

const ParamPart& ParamStore::part(const Param& p) const {
  static const ParamPart kWhole;
  const auto found = parts_.find(&p);
  return found == parts_.end() ? kWhole : found->second;
}

void ParamStore::lay_out() {
  const PrecisionPolicy policy = this->policy();
  // 16 bytes of the narrowest element held, on every rank's piece.
  const int64_t multiple =
      std::lcm(data_world_, layout_.pieces) * static_cast<int64_t>(16 / size_of(policy.value));
  total_ = local_total_ = shard_total_ = 0;
  auto place = [&](Param& p) {
    p.kept = policy.value;
    p.cast_to = policy.casts_at_use() ? std::optional(policy.compute) : std::nullopt;
    p.shards = is_sharded(p) ? shards_ : 1;
    p.padded = static_cast<int64_t>(
        round_up(static_cast<std::size_t>(p.shape.numel()), static_cast<std::size_t>(multiple)));
    p.offset = local_total_;
    total_ += p.padded;
    local_total_ += p.local();
    if (p.shards > 1) shard_total_ = local_total_;
  };
  for (const bool in_shards : {true, false}) {
    for (const bool trainable : {true, false}) {
      for (auto p = params_.rbegin(); p != params_.rend(); ++p) {
        if ((shards_ == 1 || is_sharded(*p)) == in_shards && p->trainable == trainable) place(*p);
      }
    }
  }
}

void ParamStore::materialize(RankContext& ctx, const ParamLayout& layout) {
  layout_ = layout;
  if (layout.tensor_ranks < 1 || ctx.world() % layout.tensor_ranks != 0)
    throw Error(cat(ctx.world(), " ranks do not divide into models of ", layout.tensor_ranks, " ranks each"),
                "the number of ranks must be a multiple of those a model is cut into", ErrorKind::usage);
  data_rank_ = ctx.rank() / layout.tensor_ranks;
  data_world_ = ctx.world() / layout.tensor_ranks;
  shards_ = layout.sharded ? data_world_ : 1;
  const PrecisionPolicy policy = this->policy();
  lay_out();
  // Weights that are cast at use are masters: what is computed with are the casts.
  values_ = ctx.zeros({local_total()}, policy.value, policy.casts_at_use() ? Tag::master : Tag::param);
  const bool trained = !layout.inference;
  if (trained)  // once: padding stays zero
    grads_ = ctx.zeros({layout.sharded_grads ? total_ / data_world_ : local_total_}, policy.grad, Tag::grad);
  if (policy.split && trained) low_ = ctx.zeros({local_total()}, DType::i16, Tag::master);
  for (Param& p : params_) {
    if (p.shards != 1) continue;
    p.value = values_.narrow(0, p.offset, p.shape.numel()).reshape(p.shape);
    if (trained && !layout.sharded_grads)
      p.grad = grads_.narrow(0, p.offset, p.shape.numel()).reshape(p.shape);
  }
  if (trained) draw_values(ctx);
}

void ParamStore::draw_values(RankContext& ctx) {
  for (Param& p : params_) {
    const int64_t row_size = p.shape.rank() == 1 ? 1 : p.shape[1];
    const int64_t begin = local_begin(p);
    const int64_t end = std::min(p.shape.numel(), begin + p.local());
    const ParamPart& part = this->part(p);
    const int64_t whole = part.whole_columns > 0 ? part.whole_columns : row_size;
    for (std::size_t i = 0; i < p.views.size(); ++i) {
      const ParamView& v = p.views[i];
      const int64_t first = std::max(begin, v.row_begin * row_size);
      const int64_t last = std::min(end, (v.row_begin + v.rows) * row_size);
      if (first >= last) continue;
      const int64_t at = p.offset + first - begin;
      const int64_t first_row = part.rows.empty() ? 0 : part.rows[i].first;
      init_weights(ctx, values_.narrow(0, at, last - first),
                   low_.defined() ? low_.narrow(0, at, last - first) : Tensor(), v.init, v.name,
                   first - v.row_begin * row_size, {row_size, whole, first_row * whole + part.first_column});
    }
  }
}

void ParamStore::begin_step() {
  for (Param& p : params_) {
    p.touched.clear();
    p.expected = p.arrived = 0;
  }
}

void zero_untouched_rows(RankContext& ctx, Param& p) {
  std::sort(p.touched.begin(), p.touched.end(), [](RowRange a, RowRange b) { return a.begin < b.begin; });
  const int64_t rows = p.shape[0];
  int64_t row = 0;  // touched ranges are disjoint; fill the holes between them
  auto fill_up_to = [&](int64_t end) {
    if (end <= row) return;
    const Tensor hole = p.grad.narrow(0, row, end - row);
    ctx.backend().zero(hole.raw(), hole.bytes().value, ctx.compute());
  };
  for (const RowRange& r : p.touched) {
    fill_up_to(r.begin);
    row = r.end;
  }
  fill_up_to(rows);
  p.touched.assign(1, {0, rows});
}

void ParamStore::finish_gradients(RankContext& ctx) {
  if (layout_.sharded_grads) return;  // as below
  for (Param& p : params_) {          // a sharding strategy writes its shards whole
    if (p.trainable && p.shards == 1) zero_untouched_rows(ctx, p);
  }
}

void ParamStore::set_hooks(ParamHooks* hooks) {
  for (Param& p : params_) p.hooks = hooks;
}

void ParamStore::keep_own_low(RankContext& ctx) {
  if (!low_.defined() || data_world_ == 1 || low_.numel() < total_) return;
  const Tensor own = ctx.zeros({total_ / data_world_}, DType::i16, Tag::master);
  for (const Param& p : params_) {
    const Tensor from = piece(low_, p, data_rank_, data_world_);
    ctx.backend().copy_within(piece(own, p, data_rank_, data_world_).raw(), from.raw(), from.bytes().value,
                              ctx.compute());
  }
  low_ = own;
}

Tensor ParamStore::piece(const Tensor& flat, const Param& p, int rank, int world) const {
  if (!flat.defined()) return {};
  if (layout_.sharded) return range(flat, p);
  const int64_t count = p.padded / world;
  return flat.narrow(0, flat.numel() < total_ ? p.offset / world : p.offset + count * rank, count);
}

// In arena order, which is not the order they were added in where some are frozen.
std::vector<ParamSpan> ParamStore::spans(int rank, int world) const {
  if (layout_.inference)
    throw Error("the model was set up for inference: its parameters have no gradients to update them by");
  std::vector<const Param*> trainable;
  for (const Param& p : params_) {
    if (p.trainable) trainable.push_back(&p);
  }
  std::sort(trainable.begin(), trainable.end(),
            [](const Param* a, const Param* b) { return a->offset < b->offset; });
  std::vector<ParamSpan> spans;
  spans.reserve(trainable.size());
  for (const Param* p : trainable) {
    const int64_t at = layout_.sharded ? p->offset : p->offset + p->padded / world * rank;
    spans.push_back({p->name, piece(values_, *p, rank, world), piece(low_, *p, rank, world),
                     piece(grads_, *p, rank, world), p->decay, at, policy().state, p->shape});
  }
  return spans;
}

}  // namespace kiln
