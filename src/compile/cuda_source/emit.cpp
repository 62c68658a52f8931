#include "compile/cuda_source/emit.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "compile/cuda_source/expression.h"

namespace kiln::compile {
namespace {

constexpr int kMostThreads = 512;
constexpr int64_t kMostElements = 64;   // of a row that a thread has
constexpr int64_t kMostRegisters = 40;  // for elements of inputs: beyond, each reduction reads them again

class Emitter {
 public:
  Emitter(const Program& p, const Kernel& k, std::string name) : p_(p), k_(k), text_(p, k) {
    out_.name = std::move(name);
    out_.one_row = !k.rows;
    choose_shape();
  }

  CudaKernel run() {
    head();
    for (const int v : sums_) declare_sum(v);
    text_.line(k_.rows ? "for (i64 row = blockIdx.x; row < rows; row += gridDim.x) {" : "{");
    ++text_.depth;
    if (text_.cached) read_inputs();
    for (const int v : k_.shared) reduction(v);
    for (const int v : k_.values) reduction(v);
    for (const int64_t w : widths_) stores(w);
    --text_.depth;
    text_.line("}");
    for (const int v : sums_) write_sum(v);
    text_.text += "}\n";
    for (const int v : sums_) finish_sum(v);
    out_.source = text_.text;
    return std::move(out_);
  }

 private:
  const Value& value(int v) const { return p_.graph[v]; }
  int64_t steps(int64_t width) const {
    return (width + out_.threads * out_.vector - 1) / (out_.threads * out_.vector);
  }
  int64_t elements(int64_t width) const { return steps(width) * out_.vector; }
  bool stored(int v) const { return std::find(k_.stores.begin(), k_.stores.end(), v) != k_.stores.end(); }

  void choose_shape() {
    int64_t width = 1, size = 1;
    bool even = true;
    const auto see = [&](int v) {
      const Value& x = value(v);
      width = std::max(width, x.extent.width);
      if (x.extent.width == 1 || (x.prim == Prim::input && x.period > 0)) return;
      if (text_.in_memory(v) || stored(v)) size = std::max(size, static_cast<int64_t>(size_of(x.dtype)));
      even = even && x.extent.width % 8 == 0;
    };
    for (const auto* list : {&k_.loads, &k_.shared, &k_.values})
      for (const int v : *list) see(v);
    out_.vector = even ? static_cast<int>(16 / std::max<int64_t>(size, 2)) : 1;
    out_.threads = 32;
    while (out_.threads < kMostThreads && out_.threads * 8 < width) out_.threads *= 2;
    int64_t held = 0;
    for (const int v : k_.loads)
      if (value(v).extent.rows && value(v).extent.width > 1 && value(v).period == 0)
        held += elements(value(v).extent.width);
    text_.cached = held <= kMostRegisters;
    for (const int v : k_.values)
      if (value(v).prim == Prim::column_sum) sums_.push_back(v);
    for (const int v : k_.stores) widths_.insert(value(v).extent.width);
    for (const int v : sums_) widths_.insert(value(value(v).a).extent.width);
  }

  void argument(std::string& list, int v, bool written) {
    const Value& x = value(v);
    const bool sum = x.prim == Prim::column_sum && !text_.in_memory(v);
    out_.arguments.push_back({v, sum ? DType::f32 : x.dtype, written, sum});
    list += cat(", ", written ? "" : "const ", sum ? "float" : cuda_type(x.dtype), "* __restrict__ m", v,
                ", i64 s", v);
    if (written && !sum) list += cat(", int add", v);
  }

  void head() {
    std::string list = "i64 rows";
    for (const int v : k_.loads) argument(list, v, false);
    for (const int v : k_.stores)
      if (value(v).prim != Prim::column_sum) argument(list, v, true);
    for (const int v : sums_) argument(list, v, true);
    std::string ops;
    for (const std::string& op : k_.ops) ops += cat(ops.empty() ? "" : ", ", op);
    text_.text += cat("\n// ", ops, "\n");
    text_.text += cat("extern \"C\" __global__ void __launch_bounds__(", out_.threads, ") ", out_.name, "(",
                      list, ") {\n");
  }

  // A loop over the thread's columns; where vectorizable, whole accesses of them.
  template <class F>
  void columns(int64_t width, F body) {
    text_.line("#pragma unroll");
    text_.line(cat("for (int k = 0; k < ", steps(width), "; ++k) {"));
    text_.line(cat("  const i64 c0 = ((i64)k * ", out_.threads, " + threadIdx.x) * ", out_.vector, ";"));
    text_.line(cat("  if (c0 >= ", width, ") break;"));
    ++text_.depth;
    body();
    --text_.depth;
    text_.line("}");
    text_.forget_columns();
  }
  template <class F>
  void each(F body) {
    text_.line("#pragma unroll");
    text_.line(cat("for (int j = 0; j < ", out_.vector, "; ++j) {"));
    ++text_.depth;
    text_.line(cat("const i64 c = c0 + j; const int e = k * ", out_.vector, " + j; (void)c; (void)e;"));
    body();
    --text_.depth;
    text_.line("}");
    text_.forget_columns();
  }

  void read_inputs() {
    for (const int v : k_.loads) {
      const Value& x = value(v);
      if (!x.extent.rows || x.extent.width == 1 || x.period > 0) continue;
      text_.line(cat("float x", v, "[", elements(x.extent.width), "];"));
      columns(x.extent.width, [&] {
        text_.line(cat("load<", cuda_type(x.dtype), ", ", out_.vector, ">(x", v, " + k * ", out_.vector, ", ",
                       text_.address(v, "c0"), ");"));
      });
    }
  }

  // `join` of an expression over the row, in every thread.
  template <class F>
  std::string over_row(int v, const char* join, const char* none, F expression) {
    const std::string own = cat(join, v), all = cat("all_", own);
    text_.line(cat("float ", own, " = ", none, ";"));
    columns(value(value(v).a).extent.width, [&] {
      each([&] {
        text_.line(cat(own, " = ", join, "2(", own, ", ", expression(text_.at(value(v).a, "c")), ");"));
      });
    });
    text_.line(cat("const float ", all, " = block_", join, "<", out_.threads, ">(", own, ");"));
    return all;
  }

  void reduction(int v) {
    const Prim prim = value(v).prim;
    if (!reduces(prim)) return;
    text_.prepare(value(v).a);
    if (prim == Prim::row_sum) {
      text_.reduced(v, over_row(v, "sum", "0.0f", [](const std::string& x) { return x; }));
      return;
    }
    const std::string top =
        over_row(v, "max", cuda_literal(-HUGE_VAL).c_str(), [](const std::string& x) { return x; });
    const std::string nothing = cat("(", top, " == ", cuda_literal(-HUGE_VAL), ")");
    const std::string sum = over_row(v, "sum", "0.0f", [&](const std::string& x) {
      return cat(nothing, " ? 0.0f : expf(", x, " - ", top, ")");
    });
    const std::string made = cat("r", v);
    if (prim == Prim::row_lse) {
      text_.line(cat("const float ", made, " = ", nothing, " ? ", top, " : ", top, " + logf(", sum, ");"));
      text_.reduced(v, made);
    } else {  // a row of -inf: exp(-inf - 0) is the zero that it gives
      text_.line(cat("const float ", made, " = ", nothing, " ? 0.0f : 1.0f / ", sum, ";"));
      text_.line(cat("const float top", v, " = ", nothing, " ? 0.0f : ", top, ";"));
      text_.softmax[v] = {cat("top", v), made};
    }
  }

  void stores(int64_t width) {
    std::vector<int> written;
    for (const int v : k_.stores)
      if (value(v).extent.width == width && value(v).prim != Prim::column_sum) written.push_back(v);
    std::vector<int> added;
    for (const int v : sums_)
      if (value(v).extent.width == width) added.push_back(v);
    for (const int v : written) text_.prepare(v);
    for (const int v : added) text_.prepare(value(v).a);
    if (width == 1) return thin_stores(written, added);
    columns(width, [&] {
      for (const int v : written) text_.line(cat("float o", v, "[", out_.vector, "];"));
      each([&] {
        for (const int v : written) text_.line(cat("o", v, "[j] = ", text_.at(v, "c"), ";"));
        for (const int v : added) text_.line(cat("a", v, "[e] += ", text_.at(value(v).a, "c"), ";"));
      });
      for (const int v : written) write(v);
    });
  }

  std::string only_once(int v) const { return k_.rows && !value(v).extent.rows ? "if (row == 0) " : ""; }

  void write(int v) {
    const char* type = cuda_type(value(v).dtype);
    const std::string to = text_.address(v, "c0");
    text_.line(cat(only_once(v), "{"));
    text_.line(cat("  if (add", v, ") {"));
    text_.line(cat("    float was[", out_.vector, "];"));
    text_.line(cat("    load<", type, ", ", out_.vector, ">(was, ", to, ");"));
    text_.line("#pragma unroll");
    text_.line(cat("    for (int j = 0; j < ", out_.vector, "; ++j) o", v, "[j] += was[j];"));
    text_.line("  }");
    text_.line(cat("  store<", type, ", ", out_.vector, ">(", to, ", o", v, ");"));
    text_.line("}");
  }

  void thin_stores(const std::vector<int>& written, const std::vector<int>& added) {
    for (const int v : written) {
      const std::string x = text_.scalar(v), to = text_.address(v, "");
      text_.line(cat(only_once(v), "if (threadIdx.x == 0) narrow(*(", to, "), ", x, " + (add", v,
                     " ? widen(*(", to, ")) : 0.0f));"));
    }
    for (const int v : added) text_.line(cat("a", v, "[0] += ", text_.scalar(value(v).a), ";"));
  }

  void declare_sum(int v) { text_.line(cat("float a", v, "[", elements(value(v).extent.width), "] = {};")); }
  // A row of sums for each block.
  void write_sum(int v) {
    const int64_t width = value(v).extent.width;
    if (width == 1) {
      text_.line(cat("if (threadIdx.x == 0) m", v, "[blockIdx.x] = a", v, "[0];"));
      return;
    }
    columns(width, [&] {
      each([&] { text_.line(cat("m", v, "[blockIdx.x * ", width, "ll + c] = a", v, "[e];")); });
    });
  }
  void finish_sum(int v) {
    const char* type = stored(v) ? cuda_type(value(v).dtype) : "float";
    text_.text +=
        cat("\nextern \"C\" __global__ void ", out_.name, "_sum", v,
            "(int blocks, const float* __restrict__ parts, ", type, "* __restrict__ sum, int add) {\n",
            "  const i64 c = blockIdx.x * (i64)blockDim.x + threadIdx.x;\n  if (c >= ", value(v).extent.width,
            ") return;\n  float total = 0.0f;\n  for (int b = 0; b < blocks; ++b) total += parts[b * ",
            value(v).extent.width, "ll + c];\n  narrow(sum[c], total + (add ? widen(sum[c]) : 0.0f));\n}\n");
  }

  const Program& p_;
  const Kernel& k_;
  CudaText text_;
  CudaKernel out_;
  std::vector<int> sums_;
  std::set<int64_t> widths_;
};

}  // namespace

std::string why_not_cuda(const Program& p, const Kernel& k) {
  for (const auto* list : {&k.values, &k.shared}) {
    for (const int v : *list) {
      const Value& x = p.graph[v];
      if (x.dtype == DType::f64) return "fp64 runs on the ops' own kernels";
      if (x.prim == Prim::column_sum && x.extent.width > kMostElements * kMostThreads)
        return cat("a sum over all rows of ", x.extent.width, " columns does not fit a block's registers");
    }
  }
  return {};
}

std::vector<CudaKernel> emit_cuda(const Program& p, const std::string& name) {
  std::vector<CudaKernel> kernels;
  for (const Kernel& k : p.kernels) {
    if (const std::string why = why_not_cuda(p, k); !why.empty())
      throw Error(cat("[compile] ", name, ": ", why));
    kernels.push_back(Emitter(p, k, cat(name, "_", kernels.size())).run());
  }
  return kernels;
}

}  // namespace kiln::compile
