#include "compile/derive.h"

namespace kiln::compile {
namespace {

// Reverse mode: from the last value to the first, each gives its operands their share.
class Deriver {
 public:
  Deriver(const Graph& forward, std::span<const char> wanted, DType computes)
      : out_{forward, forward.size(), {}, {}},
        build_(out_.graph, computes),
        grads_(forward.values.size(), -1) {
    reaches_.assign(forward.values.size(), 0);
    for (int i = 0; i < forward.size(); ++i) {
      const Value& v = forward[i];
      char& r = reaches_[static_cast<std::size_t>(i)];
      if (v.prim == Prim::input) {
        r = static_cast<char>(wanted[static_cast<std::size_t>(v.index)] != 0 && is_float(v.dtype) &&
                              v.period == 0);
      } else if (has_slope(v.prim)) {
        for_operands(v, [&](int o) { r = static_cast<char>(r | reaches_[static_cast<std::size_t>(o)]); });
      }
    }
  }

  Derived run() {
    outputs_ = out_.graph.outputs;
    for (const int o : outputs_) {
      build_.part_of(build_.graph()[o].op);
      const int up = build_.input(build_.extent(o), stored(o));
      out_.upstream.push_back(up);
    }
    for (int i = out_.forward - 1; i >= 0; --i) {  // inputs, too, may be outputs
      add_upstream(i);
      if (grads_[static_cast<std::size_t>(i)] >= 0 && out_.graph[i].prim != Prim::input) operands(i);
    }
    for (std::size_t k = 0; k < inputs(); ++k) {
      const int v = out_.graph.inputs[k];
      out_.grads.push_back(reaches_[static_cast<std::size_t>(v)] ? grads_[static_cast<std::size_t>(v)] : -1);
    }
    out_.graph.outputs.clear();
    return std::move(out_);
  }

 private:
  static bool has_slope(Prim p) {
    return p != Prim::constant && p != Prim::column_index && p != Prim::row_position && p != Prim::less &&
           p != Prim::equal;
  }
  std::size_t inputs() const { return out_.graph.inputs.size() - out_.upstream.size(); }
  DType stored(int v) const { return out_.graph[v].dtype; }

  // What comes from outside is added last, as it is where the region ends before it and the tape does the
  // adding: recompute cuts regions elsewhere, and must end in the same bits.
  void add_upstream(int v) {
    const std::vector<int>& outputs = outputs_;
    for (std::size_t k = 0; k < outputs.size(); ++k)
      if (outputs[k] == v) give(v, out_.upstream[k]);
  }

  // `share` is a contribution to the gradient of `to`, summed here over what `to` was broadcast over.
  void give(int to, int share) {
    if (to < 0 || !reaches_[static_cast<std::size_t>(to)]) return;
    const Extent want = build_.extent(to);
    if (want.width == 1 && build_.extent(share).width != 1) share = build_.row_sum(share);
    if (!want.rows && build_.extent(share).rows) share = build_.column_sum(share);
    share = build_.expand(share, want);
    int& held = grads_[static_cast<std::size_t>(to)];
    held = held < 0 ? share : build_.add(held, share);
  }

  // A contribution as wide as the value it comes from: a sum over a broadcast counts every column.
  int whole(int share, Extent e) { return build_.expand(share, e); }

  void operands(int i) {
    const Value v = out_.graph[i];  // by value: the vector grows
    const int g = grads_[static_cast<std::size_t>(i)];
    build_.part_of(v.op);
    Builder& b = build_;
    const auto share = [&](int to, int s) {
      if (to >= 0 && reaches_[static_cast<std::size_t>(to)]) give(to, whole(s, v.extent));
    };
    switch (v.prim) {
      case Prim::neg:
        return share(v.a, b.neg(g));
      case Prim::exp:
        return share(v.a, b.mul(g, i));
      case Prim::log:
        return share(v.a, b.div(g, v.a));
      case Prim::rsqrt:
        return share(v.a, b.mul(g, b.mul(b.number(-0.5), b.mul(i, b.mul(i, i)))));
      case Prim::recip:
        return share(v.a, b.neg(b.mul(g, b.mul(i, i))));
      case Prim::sigmoid:
        return share(v.a, b.mul(g, b.mul(i, b.sub(b.number(1), i))));
      case Prim::relu:
        return share(v.a, b.select(b.binary(Prim::less, b.number(0), i), g, b.number(0)));
      case Prim::round:
        return share(v.a, g);
      case Prim::add:
        share(v.a, g);
        return share(v.b, g);
      case Prim::sub:
        share(v.a, g);
        return share(v.b, b.neg(g));
      case Prim::mul:
        if (v.a == v.b) return share(v.a, b.mul(b.mul(b.number(2), g), v.a));
        share(v.a, b.mul(g, v.b));
        return share(v.b, b.mul(g, v.a));
      case Prim::div:
        share(v.a, b.div(g, v.b));
        return share(v.b, b.neg(b.div(b.mul(g, i), v.b)));
      case Prim::max: {
        const int second = b.binary(Prim::less, v.a, v.b);
        share(v.a, b.select(second, b.number(0), g));
        return share(v.b, b.select(second, g, b.number(0)));
      }
      case Prim::select:
        share(v.b, b.select(v.a, g, b.number(0)));
        return share(v.c, b.select(v.a, b.number(0), g));
      case Prim::expand:
        return give(v.a, whole(g, v.extent));
      case Prim::rotate:
        return share(v.a, rotated_back(v, g));
      case Prim::pick:
        return pick_back(v, g);
      case Prim::row_sum:
        return give(v.a, whole(g, b.extent(v.a)));
      case Prim::row_lse:
        return give(v.a, b.mul(g, b.unary(Prim::exp, b.sub(v.a, i))));
      case Prim::softmax: {
        const int y = as_stored(i);
        // Where a probability is 0, its gradient is not read: 0 NaN would be NaN in all of the row.
        const int dot = b.row_sum(b.select(y, b.mul(g, y), b.number(0)));
        return share(v.a, b.mul(y, b.sub(g, dot)));
      }
      case Prim::column_sum:
        return give(v.a, whole(g, b.extent(v.a)));
      default:
        return;
    }
  }

  // Probabilities as they leave the region, if they do: so the exact ones need not be kept beside them.
  int as_stored(int v) const {
    for (int i = v + 1; i < out_.forward; ++i)
      if (out_.graph[i].prim == Prim::round && out_.graph[i].a == v) return i;
    return v;
  }

  // A rotation's transpose is the rotation back, by the same table: the sines change their sign.
  int rotated_back(const Value& v, int g) {
    const int turned = build_.rotate(whole(g, v.extent), v.b, v.size, v.flag);
    Value back = build_.graph()[turned];
    back.number = 1 - v.number;  // 1: by the negative angle
    return build_.append(back);
  }

  void pick_back(const Value& v, int g) {
    Builder& b = build_;
    const Extent e = b.extent(v.a);
    const int hit = b.binary(Prim::equal, b.column_index(e.width), v.b);
    give(v.a, whole(b.select(hit, g, b.number(0)), e));
  }

  Derived out_;
  Builder build_;
  std::vector<int> outputs_;
  std::vector<int> grads_;
  std::vector<char> reaches_;
};

}  // namespace

Derived derive(const Graph& forward, std::span<const char> wanted, DType computes) {
  return Deriver(forward, wanted, computes).run();
}

}  // namespace kiln::compile
