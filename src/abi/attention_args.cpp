#include "abi/attention_args.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "abi/status.h"

namespace kiln::abi {
namespace {

constexpr int64_t kMostHeadDim = 256;

DType checked_dtype(int32_t dtype) {
  switch (dtype) {
    case KILN_FP32:
      return DType::f32;
    case KILN_BF16:
      return DType::bf16;
    case KILN_FP16:
      return DType::f16;
    default:
      reject(cat("dtype is ", dtype, "; KILN_FP32, KILN_BF16 and KILN_FP16 are ", KILN_FP32, ", ", KILN_BF16,
                 " and ", KILN_FP16));
  }
}

int64_t checked_extent(const char* name, int64_t value, int64_t least) {
  if (value < least || value > INT32_MAX)
    reject(cat(name, " is ", value, "; ", least, " .. ", INT32_MAX, " is allowed"));
  return value;
}

bool checked_flag(const char* name, int32_t value) {
  if (value != 0 && value != 1) reject(cat(name, " is ", value, "; 0 or 1 is needed"));
  return value == 1;
}

std::span<const int32_t> checked_offsets(const char* name, const char* longest_name, const int32_t* offsets,
                                         int64_t batch, int64_t longest) {
  if (offsets == nullptr) reject(cat(name, " is NULL and the other offsets are not"));
  if (offsets[0] != 0) reject(cat(name, "[0] is ", offsets[0], "; 0 is needed"));
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t count = int64_t{offsets[b + 1]} - offsets[b];
    if (count < 0) reject(cat(name, " falls from ", offsets[b], " to ", offsets[b + 1], " at sequence ", b));
    if (count > longest)
      reject(cat(name, " gives sequence ", b, " ", count, " rows; ", longest_name, ", the longest, is ",
                 longest));
  }
  return {offsets, static_cast<std::size_t>(batch) + 1};
}

void use_device_offsets(CheckedProblem& out, const kiln_attention_problem& c, Device device) {
  AttentionProblem& p = out.p;
  if (device.type == DeviceType::cpu) {
    out.cu_queries = checked_offsets("cu_queries", "queries", c.cu_queries, p.B, p.Tq);
    out.cu_keys = checked_offsets("cu_keys", "keys", c.cu_keys, p.B, p.Tk);
    return;
  }
  for (const auto& [name, offsets] : {std::pair{"cu_queries", c.cu_queries}, {"cu_keys", c.cu_keys}}) {
    if (offsets == nullptr) reject(cat(name, " is NULL and the other offsets are not"));
    if (reinterpret_cast<std::uintptr_t>(offsets) % alignof(int32_t) != 0)
      reject(cat(name, " is at ", offsets, ", not a multiple of ", alignof(int32_t), " bytes"));
  }
  out.sequences = {c.cu_queries, c.cu_keys};
  p.varlen = true;
  p.all_queries = checked_extent("query_rows", c.query_rows, 0);
  p.all_keys = checked_extent("key_rows", c.key_rows, 0);
}

// The elements from the first to one past the last of a tensor.
int64_t reach(int64_t batches, int64_t batch_stride, int64_t rows, int64_t row_stride, int64_t width) {
  int64_t across = 0, down = 0, all = 0;
  const bool overflow = __builtin_mul_overflow(batches - 1, batch_stride, &across) ||
                        __builtin_mul_overflow(rows - 1, row_stride, &down) ||
                        __builtin_add_overflow(across, down, &all) ||
                        __builtin_add_overflow(all, width, &all);
  return overflow || all > INT64_MAX / 16 ? -1 : all;
}

struct Extents {
  int64_t batches, rows, heads;
};

Extents extents(const CheckedProblem& problem, Side side) {
  return side == Side::queries ? Extents{problem.batches(), problem.query_rows(), problem.p.H}
                               : Extents{problem.batches(), problem.key_rows(), problem.p.Hkv};
}

bool empty(const Extents& e) { return e.batches == 0 || e.rows == 0; }

void check_aligned(const char* name, const void* data, std::size_t alignment) {
  if (data == nullptr) reject(cat(name, " is NULL"));
  if (reinterpret_cast<std::uintptr_t>(data) % alignment != 0)
    reject(cat(name, " is at ", data, ", not a multiple of ", alignment, " bytes"));
}

void check_view(const char* name, const kiln_attention_view& view, const Extents& e, int64_t D) {
  if (empty(e)) return;
  const int64_t width = e.heads * D;
  check_aligned(name, view.data, kTensorAlignment);
  if (e.heads > 1 && view.head_stride != D) {
    reject(
        cat(name, " has heads ", view.head_stride, " elements apart; they must be contiguous, ", D, " apart"),
        "copy it to [batch, rows, heads, head_dim]");
  }
  // Rows and batches in either order, the inner of the two axes first.
  const bool both = e.rows > 1 && e.batches > 1, rows_inside = !both || view.row_stride <= view.batch_stride;
  const int64_t inner = both ? std::min(view.row_stride, view.batch_stride)
                             : (e.rows > 1 ? view.row_stride : view.batch_stride);
  if ((e.rows > 1 || e.batches > 1) && inner < width) {
    reject(cat(name, " has ", both || e.rows > 1 ? (rows_inside ? "rows " : "batches ") : "batches ", inner,
               " elements apart, and each has ", e.heads, " heads of ", D));
  }
  int64_t covered = 0;
  if (both && (__builtin_mul_overflow(inner, rows_inside ? e.rows : e.batches, &covered) ||
               std::max(view.row_stride, view.batch_stride) < covered)) {
    reject(cat(name, " has overlapping rows: ", e.batches, " batches ", view.batch_stride,
               " elements apart, of ", e.rows, " rows ", view.row_stride, " apart"));
  }
  if (reach(e.batches, e.batches > 1 ? view.batch_stride : 0, e.rows, e.rows > 1 ? view.row_stride : 0,
            width) < 0)
    reject(cat(name, " has strides ", view.batch_stride, " and ", view.row_stride, ", beyond any memory"));
}

}  // namespace

CheckedProblem checked_problem(const kiln_attention_problem* problem, Device device) {
  if (problem == nullptr) reject("problem is NULL");
  const kiln_attention_problem& c = *problem;
  if (c.struct_size != sizeof c) {
    reject(cat("struct_size is ", c.struct_size, "; a kiln_attention_problem of this library has ", sizeof c),
           "set it to sizeof(kiln_attention_problem) of the library's own header");
  }
  if (c.reserved != 0) reject(cat("reserved is ", c.reserved, "; 0 is needed"));
  CheckedProblem out;
  AttentionProblem& p = out.p;
  p.dtype = checked_dtype(c.dtype);
  p.B = checked_extent("batch", c.batch, 0);
  p.Tq = checked_extent("queries", c.queries, 0);
  p.Tk = checked_extent("keys", c.keys, 0);
  p.H = checked_extent("heads", c.heads, 1);
  p.Hkv = checked_extent("kv_heads", c.kv_heads, 1);
  p.D = checked_extent("head_dim", c.head_dim, 1);
  if (p.D > kMostHeadDim) reject(cat("head_dim is ", p.D, "; ", kMostHeadDim, " is the most"));
  if (p.H % p.Hkv != 0) {
    reject(cat(p.H, " heads do not share ", p.Hkv, " key/value heads"),
           "heads must be a multiple of kv_heads");
  }
  int64_t elements = 0;  // of the largest tensor: B, H and T each fit into 31 bits, their product may not
  if (__builtin_mul_overflow(p.B * p.H, std::max<int64_t>({p.Tq, p.Tk, 1}) * p.D, &elements) ||
      elements > INT64_MAX / 16) {
    reject(cat(p.B, " x ", p.H, " x ", std::max(p.Tq, p.Tk), " x ", p.D,
               " elements are more than can be counted"));
  }
  if (!std::isfinite(c.scale)) reject(cat("scale is ", c.scale, "; a number is needed"));
  p.scale = c.scale != 0 ? c.scale : static_cast<float>(1 / std::sqrt(static_cast<double>(p.D)));
  p.causal = checked_flag("causal", c.causal);
  out.allow_atomic = checked_flag("allow_atomic", c.allow_atomic);
  if (c.variant != nullptr) out.variant = c.variant;
  if (c.cu_queries != nullptr || c.cu_keys != nullptr) {
    use_device_offsets(out, c, device);
  } else if (c.host_cu_queries != nullptr || c.host_cu_keys != nullptr) {
    out.cu_queries = checked_offsets("host_cu_queries", "queries", c.host_cu_queries, p.B, p.Tq);
    out.cu_keys = checked_offsets("host_cu_keys", "keys", c.host_cu_keys, p.B, p.Tk);
  }
  return out;
}

void check_views(const CheckedProblem& problem, std::span<const Argument> arguments) {
  for (const Argument& a : arguments) {
    if (a.view == nullptr) {
      if (a.use == Use::written_if_given) continue;
      reject(cat(a.name, " is NULL"));
    }
    check_view(a.name, *a.view, extents(problem, a.side), problem.p.D);
  }
  for (const Argument& a : arguments) {
    if (a.use == Use::read || a.view == nullptr || empty(extents(problem, a.side))) continue;
    for (const Argument& b : arguments) {
      if (&a != &b && b.view != nullptr && a.view->data == b.view->data && !empty(extents(problem, b.side)))
        reject(cat(a.name, " is written, and at the same address as ", b.name));
    }
  }
}

void check_lse(const CheckedProblem& problem, const float* lse) {
  if (!empty(extents(problem, Side::queries))) check_aligned("lse", lse, kTensorAlignment);
}

Tensor tensor_of(const kiln_attention_view* view, const AttentionProblem& p, Side side, int64_t first,
                 Device device) {
  if (view == nullptr) return {};
  const int64_t rows = side == Side::queries ? p.query_rows() : p.key_rows(), batches = p.batches();
  const int64_t width = (side == Side::queries ? p.H : p.Hkv) * p.D;
  // The stride of an axis of one is anything at all; kernels look at it to see whether rows are aligned.
  const int64_t row_stride = rows > 1 || first > 0 ? view->row_stride : width;
  const int64_t batch_stride = batches > 1 ? view->batch_stride : rows * row_stride;
  const std::size_t element = size_of(p.dtype);
  std::byte* data = static_cast<std::byte*>(view->data);
  if (first > 0) data += static_cast<std::size_t>(first * row_stride) * element;
  const bool none = batches == 0 || rows == 0;
  const int64_t elements = none ? 0 : reach(batches, batch_stride, rows, row_stride, width);
  return Tensor(Buffer::borrowed(data, {static_cast<std::size_t>(elements) * element}),
                {batches, rows, width}, {batch_stride, row_stride, 1}, p.dtype, device);
}

}  // namespace kiln::abi
