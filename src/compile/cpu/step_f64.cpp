// The definition of every instruction, in fp64 and as plainly as it can be said: what gradient checks run on.
#include <cmath>

#include "compile/cpu/step.h"

namespace kiln::compile {
namespace {

const double* row_of(const StepOperand& o, int64_t r) {
  return static_cast<const double*>(o.data) + r * o.row;
}
double at(const StepOperand& o, int64_t r, int64_t c) {
  return o.data == nullptr ? 0 : row_of(o, r)[o.walks ? c : 0];
}

void reduce(const Step& s, int64_t r) {
  double* y = static_cast<double*>(s.out) + r * s.out_row;
  double top = -HUGE_VAL, sum = 0;
  for (int64_t c = 0; c < s.size; ++c) {
    top = std::fmax(top, at(s.a, r, c));
    sum += at(s.a, r, c);
  }
  if (s.prim == Prim::row_sum) {
    *y = sum;
    return;
  }
  const bool nothing = top == -HUGE_VAL;
  sum = 0;
  for (int64_t c = 0; c < s.size; ++c) sum += nothing ? 0 : std::exp(at(s.a, r, c) - top);
  if (s.prim == Prim::row_lse) {
    *y = nothing ? top : top + std::log(sum);
    return;
  }
  for (int64_t c = 0; c < s.size; ++c) y[c] = nothing ? 0 : std::exp(at(s.a, r, c) - top) / sum;
}

void rotate(const Step& s, int64_t r) {
  double* y = static_cast<double*>(s.out) + r * s.out_row;
  const double *angles = row_of(s.b, (s.first_row + r) % s.period), sign = s.number == 0 ? 1 : -1;
  const int64_t half = s.size / 2;
  for (int64_t head = 0; head < s.cols; head += s.size) {
    for (int64_t i = 0; i < half; ++i) {
      const int64_t u = head + (s.flag ? 2 * i : i), v = u + (s.flag ? 1 : half);
      const double p = at(s.a, r, u), q = at(s.a, r, v), sine = sign * angles[half + i];
      y[u] = p * angles[i] - q * sine;
      y[v] = p * sine + q * angles[i];
    }
  }
}

void move(const Step& s, int64_t r) {
  for (int64_t c = 0; c < s.cols; ++c) {
    if (s.move == Move::load && s.dtype == DType::i32) {
      static_cast<double*>(s.out)[r * s.out_row + c] = static_cast<const int32_t*>(s.a.data)[r * s.a.row + c];
    } else {
      double& y = static_cast<double*>(s.out)[r * s.out_row + c];
      y = at(s.a, r, c) + (s.move == Move::add ? y : 0);
    }
  }
}

void compute(const Step& s, int64_t r) {
  double* y = static_cast<double*>(s.out) + r * s.out_row;
  for (int64_t c = 0; c < s.cols; ++c) {
    switch (s.prim) {
      case Prim::column_index:
        y[c] = static_cast<double>(s.first_column + c);
        break;
      case Prim::row_position:
        y[c] = static_cast<double>((s.first_row + r) % s.size);
        break;
      case Prim::expand:
        y[c] = at(s.a, r, c);
        break;
      case Prim::round:
        y[c] = at(s.a, r, c);
        break;  // a region of fp64 has nothing narrower
      case Prim::column_sum:
        static_cast<double*>(s.out)[c] += at(s.a, r, c);
        break;
      case Prim::pick: {
        const double column = at(s.b, r, 0);
        y[c] = column >= 0 && column < static_cast<double>(s.size) ? at(s.a, r, static_cast<int64_t>(column))
                                                                   : 0;
        break;
      }
      default:
        y[c] = evaluate(s.prim, at(s.a, r, c), at(s.b, r, c), at(s.c, r, c));
    }
  }
}

}  // namespace

void step_f64(const Step& s) {
  for (int64_t r = 0; r < s.rows; ++r) {
    if (s.move != Move::none) {
      move(s, r);
    } else if (s.prim == Prim::softmax || s.prim == Prim::row_sum || s.prim == Prim::row_lse) {
      reduce(s, r);
    } else if (s.prim == Prim::rotate) {
      rotate(s, r);
    } else {
      compute(s, r);
    }
  }
}

}  // namespace kiln::compile
