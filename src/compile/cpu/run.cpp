#include "compile/cpu/run.h"

#include <algorithm>
#include <cstring>

#include "ops/cpu_rows.h"

namespace kiln::compile {
namespace {

using In = TilePlace::In;

// A tile of the region: rows and columns of it.
struct Tile {
  int64_t row, rows, column, columns;
};

template <class Real>
class KernelRun {
 public:
  KernelRun(RankContext& ctx, const Program& p, const Kernel& k, std::span<const Memory> memory, StepFn step)
      : ctx_(ctx),
        p_(p),
        k_(k),
        memory_(memory),
        step_(step),
        tiled_(tile_kernel(p, k, dtype_of<Real>(), memory)),
        shared_(static_cast<std::size_t>(tiled_.shared_elements)),
        numbers_(tiled_.numbers.begin(), tiled_.numbers.end()) {}

  void run(const Tensor& partials, std::source_location where) {
    for (const TileStep& s : tiled_.shared)
      run_step(s, {0, 1, 0, p_.graph[s.value].extent.width}, nullptr, nullptr);
    if (tiled_.body.empty() || p_.rows == 0) {
      if (tiled_.partial_width > 0) add_up(nullptr, 0, where);
      return;
    }
    if (tiled_.partial_width > 0) return run_chunks(reinterpret_cast<Real*>(partials.raw()), where);
    const int64_t down = (p_.rows + tiled_.tile_rows - 1) / tiled_.tile_rows;
    const int64_t across = (tiled_.width + tiled_.tile_columns - 1) / tiled_.tile_columns;
    const int64_t grain = std::max<int64_t>(1, 16384 / (tiled_.tile_rows * tiled_.tile_columns));
    ctx_.pool().parallel_for(
        down * across, grain,
        [&](int64_t begin, int64_t end) {
          Real* scratch = take_scratch();
          for (int64_t t = begin; t < end; ++t)
            run_tile(t / across * tiled_.tile_rows, p_.rows, t % across, scratch, nullptr);
        },
        where);
  }

 private:
  Real* take_scratch() {
    const int64_t elements =
        tiled_.wide_registers * wide_register() + tiled_.thin_registers * thin_register();
    return reinterpret_cast<Real*>(
        ctx_.pool().scratch(static_cast<std::size_t>(elements + 64) * sizeof(Real)));
  }
  int64_t wide_register() const { return (tiled_.tile_rows * tiled_.tile_columns + 15) / 16 * 16; }
  int64_t thin_register() const { return (tiled_.tile_rows + 15) / 16 * 16; }

  void run_tile(int64_t row, int64_t end, int64_t across, Real* scratch, Real* partial) {
    const int64_t column = across * tiled_.tile_columns;
    const Tile t{row, std::min(tiled_.tile_rows, end - row), column,
                 std::min(tiled_.tile_columns, tiled_.width - column)};
    for (std::size_t i = 0; i < tiled_.body.size(); ++i)
      run_step(tiled_.body[i], t, scratch, partial, static_cast<int>(i) == tiled_.fetcher);
  }

  // Chunks of rows, each with sums of its own, which are added in order.
  void run_chunks(Real* partials, std::source_location where) {
    const int64_t each = sum_chunk_rows(p_, k_), count = (p_.rows + each - 1) / each;
    const int64_t across = (tiled_.width + tiled_.tile_columns - 1) / tiled_.tile_columns;
    ctx_.pool().parallel_for(
        p_.rows, each,
        [&](int64_t begin, int64_t end) {
          Real* scratch = take_scratch();
          Real* partial = partials + begin / each * tiled_.partial_width;
          std::fill(partial, partial + tiled_.partial_width, Real(0));
          for (int64_t row = begin; row < end; row += tiled_.tile_rows) {
            for (int64_t a = 0; a < across; ++a) run_tile(row, end, a, scratch, partial);
          }
        },
        where);
    add_up(partials, count, where);
  }

  void add_up(const Real* partials, int64_t count, std::source_location where) {
    for (const auto& [v, offset] : tiled_.sums) {
      const Memory& m = memory_[static_cast<std::size_t>(v)];
      if (m.data == nullptr) continue;
      with_float(m.dtype, [&](auto zero) {
        using G = decltype(zero);
        G* out = static_cast<G*>(m.data);
        ctx_.pool().parallel_for(
            p_.graph[v].extent.width, 1024,
            [&](int64_t begin, int64_t end) {
              for (int64_t c = begin; c < end; ++c) {
                Real sum = 0;
                for (int64_t k = 0; k < count; ++k) sum += partials[k * tiled_.partial_width + offset + c];
                put(out[c], static_cast<Accum<G>>(sum), m.add);
              }
            },
            where);
      });
    }
  }

  // The first element of a value's tile, and the way to its next row.
  StepOperand operand(const TilePlace& p, int v, const Tile& t, Real* scratch) const {
    if (p.in == In::nowhere) return {};
    if (p.in == In::number) return {&numbers_[static_cast<std::size_t>(p.offset)], 0, false};
    const Value& x = p_.graph[v];
    const bool walks = x.extent.width > 1;
    const int64_t column = walks ? t.column : 0;
    if (p.in == In::shared) return {&shared_[static_cast<std::size_t>(p.offset + column)], 0, walks};
    if (p.in == In::scratch) {
      if (!walks)
        return {scratch + tiled_.wide_registers * wide_register() + p.offset * thin_register(), 1, false};
      return {scratch + p.offset * wide_register(), std::min(x.extent.width, t.columns), true};
    }
    const Memory& m = memory_[static_cast<std::size_t>(v)];
    if (x.period > 0 && x.prim == Prim::input) return {m.data, m.row, true};  // a table: by position
    const int64_t row = x.extent.rows ? m.row : 0;
    return {static_cast<std::byte*>(m.data) + (t.row * row + column) * static_cast<int64_t>(size_of(m.dtype)),
            row, walks};
  }

  void run_step(const TileStep& s, const Tile& t, Real* scratch, Real* partial, bool fetches = false) {
    Step step = s.step;
    const Value& x = p_.graph[s.value];
    const bool sum = x.prim == Prim::column_sum && step.move == Move::none;
    step.a = operand(s.a, s.of_a, t, scratch);
    step.b = operand(s.b, s.of_b, t, scratch);
    step.c = operand(s.c, s.of_c, t, scratch);
    step.rows = t.rows;
    step.cols = x.extent.width > 1 ? std::min(x.extent.width, t.columns) : 1;
    step.first_row = t.row;
    step.first_column = t.column;
    if (sum) {
      step.out = partial + s.out.offset + (x.extent.width > 1 ? t.column : 0);
      step.out_row = 0;
    } else {
      const StepOperand out = operand(s.out, s.value, t, scratch);
      step.out = const_cast<void*>(out.data);
      step.out_row = out.row;
      join_rows(step);
    }
    if (fetches) add_fetches(step, t);
    step_(step);
  }

  // The tile after `t`, of every wide value in memory.
  void add_fetches(Step& step, const Tile& t) const {
    const bool beside = t.column + t.columns < tiled_.width;
    const int64_t row = beside ? t.row : t.row + t.rows, column = beside ? t.column + t.columns : 0;
    if (row >= p_.rows) return;
    for (const auto* list : {&k_.loads, &k_.stores}) {
      for (const int v : *list) {
        const Value& x = p_.graph[v];
        const Memory& m = memory_[static_cast<std::size_t>(v)];
        const bool dense = t.rows == 1 || m.row == t.columns;
        if (!x.extent.rows || x.extent.width != tiled_.width || x.period > 0 || m.data == nullptr || !dense)
          continue;
        if (step.fetches == Step::kFetches) return;
        const auto size = static_cast<int64_t>(size_of(m.dtype));
        step.fetch[step.fetches++] = {static_cast<const char*>(m.data) + (row * m.row + column) * size, size};
      }
    }
  }

  // Rows without gaps are one long row: a loop of its own for each would cost more than a short row's work.
  static void join_rows(Step& s) {
    const bool pointwise = s.move != Move::none || (s.prim >= Prim::neg && s.prim <= Prim::expand);
    if (!pointwise || s.rows == 1) return;
    const auto joins = [&](StepOperand& o) {
      return o.data == nullptr || (o.row == 0 && !o.walks) || (o.row == s.cols && (o.walks || s.cols == 1));
    };
    if (s.out_row != s.cols || !joins(s.a) || !joins(s.b) || !joins(s.c)) return;
    for (StepOperand* o : {&s.a, &s.b, &s.c}) o->walks = o->data != nullptr && o->row != 0;
    s.cols *= s.rows;
    s.rows = 1;
  }

  RankContext& ctx_;
  const Program& p_;
  const Kernel& k_;
  std::span<const Memory> memory_;
  StepFn step_;
  TiledKernel tiled_;
  std::vector<Real> shared_, numbers_;
};

}  // namespace

void run_on_cpu(RankContext& ctx, const Program& p, DType computes, std::span<const Memory> memory,
                const Tensor& partials, std::source_location where) {
  for (const Kernel& k : p.kernels) {
    if (computes == DType::f64) {
      KernelRun<double>(ctx, p, k, memory, step_f64).run(partials, where);
    } else {
      KernelRun<float>(ctx, p, k, memory, step_f32(ctx.traits().isa)).run(partials, where);
    }
  }
}

}  // namespace kiln::compile
