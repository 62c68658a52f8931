#include "compile/cpu/tile.h"

#include <algorithm>

namespace kiln::compile {
namespace {

using In = TilePlace::In;

// Floats of a tile's registers and operands. Half of it spills from a first-level cache of 32 KiB into the
// second, which costs less than shorter loops: on an EPYC with 2 threads, SwiGLU's backward took 1.2 ms with
// this, 2.0 ms with half of it, at 512 x 2048.
constexpr int64_t kTileElements = 12288;

bool along_row(Prim p) {
  return p == Prim::row_sum || p == Prim::row_lse || p == Prim::softmax || p == Prim::rotate ||
         p == Prim::pick;
}

class Tiler {
 public:
  Tiler(const Program& p, const Kernel& k, DType computes, std::span<const Memory> memory)
      : p_(p),
        k_(k),
        computes_(computes),
        memory_(memory),
        place_(p.graph.values.size()),
        last_(p.graph.values.size(), -1) {}

  TiledKernel run() {
    for (const int v : k_.loads) place_[at(v)] = loaded(v);
    for (const int v : k_.shared) make_shared(v);
    for (const int v : k_.shared)
      if (memory_[at(v)].data != nullptr && stored(v)) store(v, out_.shared);
    body();
    sizes();
    choose_fetcher();
    return std::move(out_);
  }

 private:
  static std::size_t at(int v) { return static_cast<std::size_t>(v); }
  const Value& value(int v) const { return p_.graph[v]; }
  bool stored(int v) const { return std::find(k_.stores.begin(), k_.stores.end(), v) != k_.stores.end(); }

  TilePlace shared_place(int v) {
    const TilePlace place{In::shared, v, out_.shared_elements};
    out_.shared_elements += value(v).extent.width / 16 * 16 + 16;  // some even where there are no columns
    return place;
  }

  // In memory as it is where it has the format that is computed in; else converted: once for all rows, or
  // tile by tile when it is first read.
  TilePlace loaded(int v) {
    const Memory& m = memory_[at(v)];
    if (m.dtype == computes_) return {In::memory, v, 0};
    if (value(v).extent.rows) return {};
    TileStep s = blank(v);
    s.step.move = Move::load;
    s.step.dtype = m.dtype;
    s.a = {In::memory, v, 0};
    s.of_a = v;
    s.out = shared_place(v);
    out_.shared.push_back(s);
    return s.out;
  }

  TileStep blank(int v) const {
    TileStep s;
    const Value& x = value(v);
    s.value = v;
    s.step.prim = x.prim;
    s.step.size = x.size;
    s.step.period = x.period;
    s.step.number = x.number;
    s.step.flag = x.flag;
    s.step.dtype = x.dtype;
    if (x.a >= 0 && x.prim != Prim::rotate && along_row(x.prim)) s.step.size = value(x.a).extent.width;
    return s;
  }

  TilePlace number(double x) {
    const auto found = std::find(out_.numbers.begin(), out_.numbers.end(), x);
    const auto index = found - out_.numbers.begin();
    if (found == out_.numbers.end()) out_.numbers.push_back(x);
    return {In::number, -1, index};
  }

  void operands(TileStep& s) {
    const Value& x = value(s.value);
    s.a = operand(s.of_a = x.a);
    s.b = operand(s.of_b = x.b);
    s.c = operand(s.of_c = x.c);
  }
  TilePlace operand(int v) const { return v < 0 ? TilePlace{} : place_[at(v)]; }

  void make_shared(int v) {
    if (value(v).prim == Prim::constant) {
      place_[at(v)] = number(value(v).number);
      return;
    }
    TileStep s = blank(v);
    operands(s);
    s.out = place_[at(v)] = shared_place(v);
    out_.shared.push_back(s);
  }

  void store(int v, std::vector<TileStep>& steps) {
    TileStep s = blank(v);
    s.step.move = memory_[at(v)].add ? Move::add : Move::store;
    s.step.dtype = memory_[at(v)].dtype;
    s.a = place_[at(v)];
    s.of_a = v;
    s.out = {In::memory, v, 0};
    steps.push_back(s);
  }

  // A result that nothing reads in another format, nor from where it is about to be written.
  bool direct(int v) const {
    const Memory& m = memory_[at(v)];
    return stored(v) && m.data != nullptr && m.dtype == computes_ && !m.add && !m.aliased;
  }

  void body() {
    std::vector<int> order;  // what is made tile by tile, loads included
    for (const int v : k_.loads)
      if (value(v).extent.rows && place_[at(v)].in == In::nowhere) order.push_back(v);
    order.insert(order.end(), k_.values.begin(), k_.values.end());
    std::vector<int> late;  // stores that come last, for what they overwrite may still be read
    for (const int v : k_.values) {
      const bool stores = value(v).prim != Prim::column_sum && stored(v) && memory_[at(v)].data != nullptr;
      if (stores && !direct(v)) late.push_back(v);
    }
    for (const int v : order) for_operands(value(v), [&](int o) { last_[at(o)] = v; });
    for (const int v : late) last_[at(v)] = p_.graph.size();
    // A load that only a wide step reads late would hold a register from the start: made when first read.
    std::vector<char> made(p_.graph.values.size(), 0);
    for (const int v : k_.values) {
      for_operands(value(v), [&](int o) { load_for(o, made); });
      make(v);
    }
    for (const int v : late) {
      load_for(v, made);
      store(v, out_.body);
    }
  }

  void load_for(int v, std::vector<char>& made) {
    if (place_[at(v)].in != In::nowhere || made[at(v)]) return;
    made[at(v)] = 1;
    TileStep s = blank(v);
    s.step.move = Move::load;
    s.step.dtype = memory_[at(v)].dtype;
    s.a = {In::memory, v, 0};
    s.of_a = v;
    s.out = place_[at(v)] = take(v);
    out_.body.push_back(s);
  }

  void make(int v) {
    TileStep s = blank(v);
    operands(s);
    if (value(v).prim == Prim::column_sum) {
      out_.sums.emplace_back(v, out_.partial_width);
      s.out = {In::partial, v, out_.partial_width};
      out_.partial_width += value(v).extent.width;
    } else if (direct(v)) {
      s.out = {In::memory, v, 0};
    } else {
      // Its operands' registers are free only after it: an instruction along a row reads what it has written.
      s.out = take(v);
    }
    place_[at(v)] = s.out;
    out_.body.push_back(s);
    for_operands(value(v), [&](int o) {
      if (last_[at(o)] == v) give_back(o);
    });
    if (last_[at(v)] < 0) give_back(v);
  }

  bool wide(int v) const { return value(v).extent.width > 1; }
  TilePlace take(int v) {
    std::vector<int64_t>& free = wide(v) ? free_wide_ : free_thin_;
    int& count = wide(v) ? out_.wide_registers : out_.thin_registers;
    if (free.empty()) return {In::scratch, v, count++};
    const int64_t r = free.back();
    free.pop_back();
    return {In::scratch, v, r};
  }
  void give_back(int v) {
    TilePlace& p = place_[at(v)];
    if (p.in != In::scratch || returned_.size() <= at(v)) returned_.resize(p_.graph.values.size(), 0);
    if (p.in != In::scratch || returned_[at(v)]) return;
    returned_[at(v)] = 1;
    (wide(v) ? free_wide_ : free_thin_).push_back(p.offset);
  }

  void sizes() {
    bool whole_rows = false;
    for (const int v : k_.values) {
      const Value& x = value(v);
      whole_rows = whole_rows || along_row(x.prim);
      widen(x.extent.width, whole_rows);
      for_operands(x, [&](int o) { widen(value(o).extent.width, whole_rows); });
    }
    for (const int v : k_.loads)
      if (value(v).extent.rows && value(v).period == 0) widen(value(v).extent.width, whole_rows);
    int streams = out_.wide_registers + 1;
    for (const int v : k_.loads)
      streams += value(v).extent.rows && wide(v) && memory_[at(v)].dtype == computes_;
    const int64_t most = std::clamp<int64_t>(kTileElements / streams, 256, 2048);
    // Equal tiles of whole cache lines: one that begins inside a line makes every access touch two.
    const int64_t tiles = (out_.width + most - 1) / most, each = (out_.width + tiles - 1) / tiles;
    out_.tile_columns = whole_rows || tiles == 1 ? out_.width : std::min(out_.width, (each + 63) / 64 * 64);
    out_.tile_rows = std::max<int64_t>(1, most / out_.tile_columns);
  }
  // The first that computes for long enough.
  void choose_fetcher() {
    for (std::size_t i = 0; i < out_.body.size(); ++i) {
      const TileStep& s = out_.body[i];
      const bool wide_step = s.step.move == Move::none && wide(s.value);
      if (wide_step && (s.step.prim == Prim::sigmoid || s.step.prim == Prim::exp)) {
        out_.fetcher = static_cast<int>(i);
        return;
      }
    }
  }
  void widen(int64_t width, bool& whole_rows) {
    if (width > 1 && out_.width > 1 && width != out_.width) whole_rows = true;  // q and k, say
    out_.width = std::max(out_.width, width);
  }

  const Program& p_;
  const Kernel& k_;
  DType computes_;
  std::span<const Memory> memory_;
  std::vector<TilePlace> place_;
  std::vector<int> last_;  // the last value that reads it
  std::vector<int64_t> free_wide_, free_thin_;
  std::vector<char> returned_;
  TiledKernel out_;
};

}  // namespace

TiledKernel tile_kernel(const Program& p, const Kernel& k, DType computes, std::span<const Memory> memory) {
  return Tiler(p, k, computes, memory).run();
}

int64_t sum_chunk_rows(const Program& p, const Kernel& k) {
  int64_t width = 1;
  for (const int v : k.values) width = std::max(width, p.graph[v].extent.width);
  return std::max(std::max<int64_t>(1, 16384 / width), (p.rows + 63) / 64);
}

std::size_t partial_bytes(const Program& p, const Kernel& k, DType computes) {
  int64_t width = 0;
  for (const int v : k.values)
    if (p.graph[v].prim == Prim::column_sum) width += p.graph[v].extent.width;
  const int64_t each = sum_chunk_rows(p, k);
  return static_cast<std::size_t>((p.rows + each - 1) / each * width) * size_of(computes);
}

}  // namespace kiln::compile
