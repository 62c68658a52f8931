#include "compile/cuda_source/expression.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/plain_number.h"

namespace kiln::compile {

const char* cuda_type(DType t) {
  switch (t) {
    case DType::bf16:
      return "bf16";
    case DType::f16:
      return "fp16";
    case DType::i32:
      return "int";
    default:
      return "float";
  }
}

// Exact in hexadecimal, and readable where it is a whole number.
std::string cuda_literal(double x) {
  if (std::isnan(x)) return "__int_as_float(0x7fc00000)";
  if (x == std::floor(x) && std::fabs(x) < 1e6) return cat(static_cast<int64_t>(x), ".0f");
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(x));
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string hex;
  for (int shift = 28; shift >= 0; shift -= 4) hex += kDigits[bits >> shift & 15u];
  return cat("__uint_as_float(0x", hex, "u)", std::isinf(x) ? "" : cat(" /* ", plain(x, 6), " */"));
}

std::string CudaText::name() { return cat("t", names_++); }

bool CudaText::in_memory(int v) const {
  return std::find(k_.loads.begin(), k_.loads.end(), v) != k_.loads.end();
}

std::string CudaText::address(int v, const std::string& column) const {
  const Value& x = value(v);
  std::string at = cat("m", v);
  if (x.extent.rows) at += cat(" + row * s", v);
  return column.empty() ? at : cat(at, " + ", column);
}

std::string CudaText::scalar(int v) {
  const Value& x = value(v);
  if (x.prim == Prim::constant) return cuda_literal(x.number);
  if (const auto found = scalars_.find(v); found != scalars_.end()) return found->second;
  std::string made;
  if (in_memory(v)) {
    made = cat("widen(*(", address(v, ""), "))");
  } else if (x.prim == Prim::pick) {
    const std::string column = scalar(x.b), at_column = name(), inside = name();
    const int64_t width = value(x.a).extent.width;
    line(cat("const bool ", inside, " = ", column, " >= 0.0f && ", column, " < ", width, ".0f;"));
    line(cat("const i64 ", at_column, " = ", inside, " ? (i64)", column, " : 0;"));
    made = cat(inside, " ? ", at(x.a, at_column), " : 0.0f");
  } else {
    made = compute(v, "");
  }
  const std::string n = name();
  line(cat("const float ", n, " = ", made, ";  // ", name_of(x.prim), x.op[0] ? cat(" of ", x.op) : ""));
  scalars_[v] = n;
  return n;
}

void CudaText::prepare(int v) {
  const Value& x = value(v);
  if (x.extent.width == 1) {
    (void)scalar(v);
    return;
  }
  if (in_memory(v) || reduces(x.prim)) return;
  for_operands(x, [&](int o) { prepare(o); });
}

std::string CudaText::at(int v, const std::string& column) {
  const Value& x = value(v);
  if (x.extent.width == 1) return scalar(v);
  const auto key = std::make_pair(v, column);
  if (const auto found = columns_.find(key); found != columns_.end()) return found->second;
  if (in_memory(v)) {
    if (cached && column == "c" && x.extent.rows) return cat("x", v, "[e]");
    const std::string n = name();
    line(cat("const float ", n, " = widen(", "*(", address(v, column), "));"));
    return columns_[key] = n;
  }
  std::string made;
  if (x.prim == Prim::rotate) {
    made = rotate(v, column);
  } else if (x.prim == Prim::softmax) {
    const auto& [top, scale] = softmax.at(v);
    made = cat("expf(", at(x.a, column), " - ", top, ") * ", scale);
  } else {
    made = compute(v, column);
  }
  const std::string n = name();
  line(cat("const float ", n, " = ", made, ";"));
  return columns_[key] = n;
}

std::string CudaText::operand(int v, const std::string& column) {
  return value(v).extent.width == 1 || column.empty() ? scalar(v) : at(v, column);
}

std::string CudaText::compute(int v, const std::string& column) {
  const Value& x = value(v);
  const std::string a = x.a >= 0 ? operand(x.a, column) : "", b = x.b >= 0 ? operand(x.b, column) : "",
                    c = x.c >= 0 ? operand(x.c, column) : "";
  switch (x.prim) {
    case Prim::column_index:
      return cat("(float)", column);
    case Prim::row_position:
      return cat("(float)(row % ", x.size, ")");
    case Prim::neg:
      return cat("-", a);
    case Prim::exp:
      return cat("expf(", a, ")");
    case Prim::log:
      return cat("logf(", a, ")");
    case Prim::rsqrt:
      return cat("1.0f / sqrtf(", a, ")");
    case Prim::recip:
      return cat("1.0f / ", a);
    case Prim::sigmoid:
      return cat("1.0f / (1.0f + expf(-", a, "))");
    case Prim::relu:
      return cat(a, " < 0.0f ? 0.0f : ", a);
    case Prim::round:
      return cat("rounded<", cuda_type(x.dtype), ">(", a, ")");
    case Prim::add:
      return cat(a, " + ", b);
    case Prim::sub:
      return cat(a, " - ", b);
    case Prim::mul:
      return cat(a, " * ", b);
    case Prim::div:
      return cat(a, " / ", b);
    case Prim::max:
      return cat("max2(", a, ", ", b, ")");
    case Prim::less:
      return cat(a, " < ", b, " ? 1.0f : 0.0f");
    case Prim::equal:
      return cat(a, " == ", b, " ? 1.0f : 0.0f");
    case Prim::select:
      return cat(a, " != 0.0f ? ", b, " : ", c);
    case Prim::expand:
      return a;
    default:
      throw Error(cat("[compile] ", name_of(x.prim), " has no CUDA expression"));
  }
}

// What a pair's other half is, is read where it stands: a thread does not have it.
std::string CudaText::rotate(int v, const std::string& column) {
  const Value& x = value(v);
  const std::string partner = name(), first = name(), pair = name(), angle = name(), sine = name();
  const int64_t half = x.size / 2;
  if (x.flag) {
    line(cat("const bool ", first, " = ", column, " % 2 == 0;"));
    line(cat("const i64 ", partner, " = ", column, " ^ 1, ", pair, " = ", column, " % ", x.size, " / 2;"));
  } else {
    line(cat("const bool ", first, " = ", column, " % ", x.size, " < ", half, ";"));
    line(cat("const i64 ", partner, " = ", first, " ? ", column, " + ", half, " : ", column, " - ", half,
             ", ", pair, " = ", column, " % ", half, ";"));
  }
  line(cat("const float* ", angle, " = m", x.b, " + row % ", x.period, " * s", x.b, " + ", pair, ";"));
  const bool back = x.number != 0;
  line(cat("const float ", sine, " = ", first, back ? " ? " : " ? -", angle, "[", half,
           "] : ", back ? "-" : "", angle, "[", half, "];"));
  return cat(at(x.a, column), " * *", angle, " + ", at(x.a, partner), " * ", sine);
}

}  // namespace kiln::compile
