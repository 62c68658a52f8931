#include "compile/trace.h"

#include <algorithm>

namespace kiln::compile {
namespace {

// Counts what the ops cost that are recorded, each as itself.
class OpCosts final : public OpObserver {
 public:
  void on_op_begin(RankContext&, const OpEvent& e) override {
    if (e.pass == Pass::forward) ops.push_back({std::string(e.op), e.cost, {}});
    if (e.pass == Pass::backward) {  // from the last op to the first
      for (auto op = ops.rbegin(); op != ops.rend(); ++op) {
        if (op->name != e.op || op->backward.bytes > 0) continue;
        op->backward = e.cost;
        break;
      }
    }
  }
  std::vector<TracedOp> ops;
};

RankOptions meta_options() {
  RankOptions o;
  o.device = Device::meta(DeviceType::cpu);
  o.threads = 1;
  o.matmuls = false;
  return o;
}

class Tracer {
 public:
  Tracer(const Region& region, const RegionInputs& in)
      : region_(region), ctx_(meta_options()), build_(traced_.graph, computes(in)) {
    ctx_.add_observer(&costs_);
    traced_.computes = computes(in);
    traced_.rows = rows_of(in);
    for (const Tensor& t : in.tensors) add_tensor(t);
    for (const ParamRef& p : in.params) add_param(p);
  }
  ~Tracer() {
    ctx_.tape().reset();
    ctx_.remove_observer(&costs_);
  }
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  Traced run() {
    const Tensors outputs = region_.run(ctx_, here_);
    for (const Tensor& t : outputs) outputs_.push_back(ctx_.tape().value_index(t));
    for (const Node& node : ctx_.tape().nodes()) expand(node);
    for (const Tensor& t : outputs) {
      const int v = value_of(ctx_.tape().value_index(t), "the region");
      traced_.graph.outputs.push_back(v);
      traced_.outputs.push_back({t.shape(), t.dtype()});
    }
    run_backward(outputs);
    traced_.ops = costs_.ops;
    check_graph(traced_.graph);
    return std::move(traced_);
  }

 private:
  static DType computes(const RegionInputs& in) {
    for (const Tensor& t : in.tensors)
      if (t.dtype() == DType::f64) return DType::f64;
    return DType::f32;
  }
  static int64_t rows_of(const RegionInputs& in) {
    int64_t rows = 1;
    for (const Tensor& t : in.tensors) {
      if (is_float(t.dtype()) && t.shape().rank() > 1) rows = std::max(rows, t.shape().rows());
      if (is_float(t.dtype()) && t.numel() == 0) return 0;
    }
    return rows;
  }

  // [.., W] with a row for each of the region's, one number for each, or one row for all.
  Extent extent_of(const Shape& s) const {
    if (s.rank() > 1 && s.rows() == traced_.rows) return {true, s.last()};
    if (s.numel() == traced_.rows) return {true, 1};
    if (s.rank() == 1) return {false, s.last()};
    throw Error(
        cat("[compile] region ", region_.name, " has a tensor of ", s.str(), " beside ", traced_.rows,
            " rows"),
        "tensors of a region have one number of rows (all axes but the last), a value a row, or one row");
  }

  void add_tensor(const Tensor& t) {
    if (is_float(t.dtype()) && (t.dtype() == DType::f64) != (traced_.computes == DType::f64))
      throw Error(cat("[compile] region ", region_.name, " has tensors of fp64 and of ", name_of(t.dtype())));
    const Tensor made = ctx_.empty(t.shape(), t.dtype());
    const int v = build_.input(extent_of(t.shape()), t.dtype());
    addresses_[made.raw()] = v;
    if (!is_float(t.dtype())) {
      here_.tensors.push_back(made);
      return;
    }
    here_.tensors.push_back(ctx_.tape().watch(made));
    note(ctx_.tape().value_index(here_.tensors[here_.tensors.size() - 1]), v);
  }

  void add_param(const ParamRef& p) {
    params_.push_back(std::make_unique<Param>());
    Param& made = *params_.back();
    made.name = p.param->name;
    made.shape = p.shape();
    made.kept = dtype_of_weight(*p.param);
    made.value = ctx_.empty(made.shape, made.kept);
    made.grad = ctx_.empty(made.shape, made.kept);
    weights_[&made] = build_.input({false, made.shape.numel()}, made.kept);
    here_.params.push_back(ParamRef(made));
  }

  // As an output of the region: an input in another format is no longer that input.
  int stored(int v, DType dtype) {
    const int rounded = build_.round(v, dtype);
    const Value& x = traced_.graph[rounded];
    if (x.prim != Prim::input || x.dtype == dtype) return rounded;
    Value copy;
    copy.prim = Prim::expand;
    copy.extent = x.extent;
    copy.dtype = dtype;
    copy.a = rounded;
    return build_.append(copy);
  }

  void note(int32_t tape_value, int v) { values_[tape_value] = v; }
  int value_of(int32_t tape_value, const char* reader) const {
    const auto found = values_.find(tape_value);
    if (tape_value < 0 || found == values_.end())
      throw Error(cat("[compile] ", reader, " of region ", region_.name,
                      " reads a tensor that is none of its inputs"),
                  "a region depends on the tensors and weights that it is given");
    return found->second;
  }

  class Call final : public ExpandCall {
   public:
    Call(Tracer& t, const Node& node) : ExpandCall(t.build_, node), t_(t) {}
    int in(int i) override { return t_.value_of(node.inputs[i], node.op); }
    int param(int i) override {
      const auto found = t_.weights_.find(node.params[i].param);
      if (found == t_.weights_.end())
        throw Error(
            cat("[compile] ", node.op, " of region ", t_.region_.name, " uses a weight that is no input"));
      return found->second;
    }
    int saved_input(const char* name) override {
      for (const NamedTensor& s : node.saved) {
        const auto found = t_.addresses_.find(s.tensor.raw());
        if (std::strcmp(s.name, name) == 0 && found != t_.addresses_.end()) return found->second;
      }
      throw Error(cat("[compile] ", node.op, " of region ", t_.region_.name, " reads '", name,
                      "', which is no input"));
    }
    int out(int i, int value) override {
      const int32_t at = node.first_output + i;
      const auto& outputs = t_.outputs_;
      // What leaves the region is stored in its format, and is read inside it as it was stored.
      if (std::find(outputs.begin(), outputs.end(), at) != outputs.end())
        value = t_.stored(value, t_.ctx_.tape().dtype_of_value(at));
      t_.note(at, value);
      return value;
    }
    int table(Table table) override {
      table.input = static_cast<int>(b.graph().inputs.size());
      t_.traced_.tables.push_back(table);
      return b.table(table.rows, table.columns, t_.traced_.computes);
    }

   private:
    Tracer& t_;
  };

  void expand(const Node& node) {
    const Expansion* e = find_expansion(node.op);
    if (e == nullptr)
      throw Error(cat("[compile] region ", region_.name, " calls ", node.op, ", which has no primitives"),
                  "matmuls, attention and lookups stand between regions, not in them");
    build_.part_of(e->op.data());
    Call call(*this, node);
    e->expand(call);
  }

  // For what the ops' own backward costs; the graph's gradient is derived, not recorded.
  void run_backward(const Tensors& outputs) {
    for (int i = 0; i + 1 < outputs.size(); ++i) {
      const Tensor& t = outputs[i];
      ctx_.tape().give_grad(t, ctx_.empty(t.shape(), t.dtype()));
    }
    const Tensor& last = outputs[outputs.size() - 1];
    ctx_.tape().backward(last, ctx_.empty(last.shape(), last.dtype()));
  }

  const Region& region_;
  RankContext ctx_;
  Traced traced_;
  Builder build_;
  OpCosts costs_;
  RegionInputs here_;
  std::vector<std::unique_ptr<Param>> params_;
  std::map<const Param*, int> weights_;
  std::map<const std::byte*, int> addresses_;
  std::map<int32_t, int> values_;
  std::vector<int32_t> outputs_;
};

}  // namespace

Traced trace(const Region& region, const RegionInputs& in) { return Tracer(region, in).run(); }

}  // namespace kiln::compile
