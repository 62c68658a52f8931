// The instructions of compiled kernels; included once per vector width (device/cpu/simd_each.h).

using compile::Move;
using compile::Prim;
using compile::Step;
using compile::StepOperand;

static inline const float* row_of(const StepOperand& o, int64_t r) {
  return static_cast<const float*>(o.data) + r * o.row;
}
static inline float* out_row(const Step& s, int64_t r) { return static_cast<float*>(s.out) + r * s.out_row; }
static inline F32 read(const float* p, bool walks, int64_t c, int n) {
  return walks ? load_some(p + c, n) : broadcast(*p);
}

// An instruction reads a tile in one burst, and then the kernel works in cache for a while, with memory idle:
// an exponential is long enough to fetch the next tile beside it.
template <class F>
static void fetching_step(const Step& s, F f) {
  for (int64_t r = 0; r < s.rows; ++r) {
    const float* a = row_of(s.a, r);
    float* y = out_row(s, r);
    for_vectors(s.cols, [&](int64_t c, int n) {
      for (int k = 0; k < s.fetches; ++k)
        __builtin_prefetch(s.fetch[k].from + (r * s.cols + c) * s.fetch[k].size);
      store_some(y + c, f(load_some(a + c, n)), n);
    });
  }
}

template <class F>
static void unary_step(const Step& s, F f) {
  if (s.fetches > 0 && s.a.walks) return fetching_step(s, f);
  for (int64_t r = 0; r < s.rows; ++r) {
    const float* a = row_of(s.a, r);
    float* y = out_row(s, r);
    if (s.a.walks) {
      for_vectors(s.cols, [&](int64_t c, int n) { store_some(y + c, f(load_some(a + c, n)), n); });
    } else {
      const F32 x = f(broadcast(*a));
      for_vectors(s.cols, [&](int64_t c, int n) { store_some(y + c, x, n); });
    }
  }
}

// The three shapes that matter get loops of their own, without a branch in them.
template <class F>
static void binary_step(const Step& s, F f) {
  for (int64_t r = 0; r < s.rows; ++r) {
    const float *a = row_of(s.a, r), *b = row_of(s.b, r);
    float* y = out_row(s, r);
    if (s.a.walks && s.b.walks) {
      for_vectors(s.cols, [&](int64_t c, int n) {
        store_some(y + c, f(load_some(a + c, n), load_some(b + c, n)), n);
      });
    } else if (s.a.walks) {
      const F32 x = broadcast(*b);
      for_vectors(s.cols, [&](int64_t c, int n) { store_some(y + c, f(load_some(a + c, n), x), n); });
    } else if (s.b.walks) {
      const F32 x = broadcast(*a);
      for_vectors(s.cols, [&](int64_t c, int n) { store_some(y + c, f(x, load_some(b + c, n)), n); });
    } else {
      const F32 x = f(broadcast(*a), broadcast(*b));
      for_vectors(s.cols, [&](int64_t c, int n) { store_some(y + c, x, n); });
    }
  }
}

static void select_step(const Step& s) {
  const F32 zero = zero_vector();
  for (int64_t r = 0; r < s.rows; ++r) {
    const float *a = row_of(s.a, r), *b = row_of(s.b, r), *c = row_of(s.c, r);
    float* y = out_row(s, r);
    for_vectors(s.cols, [&](int64_t i, int n) {
      store_some(
          y + i,
          where_equal(read(a, s.a.walks, i, n), zero, read(c, s.c.walks, i, n), read(b, s.b.walks, i, n)), n);
    });
  }
}

static void log_step(const Step& s) {
  for (int64_t r = 0; r < s.rows; ++r) {
    for (int64_t c = 0; c < s.cols; ++c) out_row(s, r)[c] = std::log(row_of(s.a, r)[s.a.walks ? c : 0]);
  }
}

// Lanes past the end are the first element again, which is no new maximum.
static inline float max_over(const float* a, int64_t n) {
  F32 top_lanes = broadcast(a[0]);
  int64_t i = 0;
  for (; i + F32::kWidth <= n; i += F32::kWidth) top_lanes = max(top_lanes, load(a + i));
  float m = top(top_lanes);
  for (; i < n; ++i) m = a[i] > m ? a[i] : m;
  return m;
}
static inline F32 exp_from(const float* a, float m, int64_t c, int n) {
  return keep_first(exp(load_some(a + c, n) - broadcast(m)), n);
}

static void reduce_step(const Step& s) {
  for (int64_t r = 0; r < s.rows; ++r) {
    const float* a = row_of(s.a, r);
    float* y = out_row(s, r);
    if (s.prim == Prim::row_sum) {
      *y = sum_over(s.size, [&](int64_t c, int n) { return load_some(a + c, n); });
      continue;
    }
    const float m = max_over(a, s.size);
    const bool nothing = m == -HUGE_VALF;
    if (s.prim == Prim::row_lse) {
      *y = nothing ? m
                   : m + std::log(sum_over(s.size, [&](int64_t c, int n) { return exp_from(a, m, c, n); }));
      continue;
    }
    if (nothing) {
      std::memset(y, 0, static_cast<std::size_t>(s.size) * sizeof(float));
      continue;
    }
    const float sum = sum_over(s.size, [&](int64_t c, int n) {
      const F32 e = exp_from(a, m, c, n);
      store_some(y + c, e, n);
      return e;
    });
    const F32 scale = broadcast(1.0f / sum);
    for_vectors(s.size, [&](int64_t c, int n) { store_some(y + c, load_some(y + c, n) * scale, n); });
  }
}

// The table has the cosines of a row's pairs, then their sines.
static void rotate_step(const Step& s) {
  const int64_t half = s.size / 2;
  const F32 sign = broadcast(s.number == 0 ? 1.0f : -1.0f);
  for (int64_t r = 0; r < s.rows; ++r) {
    const float* a = row_of(s.a, r);
    const float *cosine = row_of(s.b, (s.first_row + r) % s.period), *sine = cosine + half;
    float* y = out_row(s, r);
    for (int64_t head = 0; head < s.cols; head += s.size) {
      const float* x = a + head;
      float* z = y + head;
      if (s.flag) {
        const float turn = s.number == 0 ? 1.0f : -1.0f;
        for (int64_t i = 0; i < half; ++i) {
          const float u = x[2 * i], v = x[2 * i + 1];
          z[2 * i] = u * cosine[i] - turn * v * sine[i];
          z[2 * i + 1] = turn * u * sine[i] + v * cosine[i];
        }
        continue;
      }
      for_vectors(half, [&](int64_t i, int n) {
        const F32 c = load_some(cosine + i, n), t = sign * load_some(sine + i, n);
        const F32 u = load_some(x + i, n), v = load_some(x + half + i, n);
        store_some(z + i, u * c - v * t, n);
        store_some(z + half + i, u * t + v * c, n);
      });
    }
  }
}

static void pick_step(const Step& s) {
  for (int64_t r = 0; r < s.rows; ++r) {
    const float column = *row_of(s.b, r);
    const bool there = column >= 0 && column < static_cast<float>(s.size);
    *out_row(s, r) = there ? row_of(s.a, r)[s.a.walks ? static_cast<int64_t>(column) : 0] : 0;
  }
}

// Row after row into one row of sums, so that neither tiles nor threads change the order.
static void column_sum_step(const Step& s) {
  float* y = static_cast<float*>(s.out);
  if (s.cols == 1) {
    for (int64_t r = 0; r < s.rows; ++r) *y += *row_of(s.a, r);
    return;
  }
  for (int64_t r = 0; r < s.rows; ++r) {
    const float* a = row_of(s.a, r);
    for_vectors(s.cols,
                [&](int64_t c, int n) { store_some(y + c, load_some(y + c, n) + load_some(a + c, n), n); });
  }
}

static void fill_step(const Step& s) {
  for (int64_t r = 0; r < s.rows; ++r) {
    float* y = out_row(s, r);
    for (int64_t c = 0; c < s.cols; ++c) {
      y[c] = s.prim == Prim::column_index ? static_cast<float>(s.first_column + c)
                                          : static_cast<float>((s.first_row + r) % s.size);
    }
  }
}

template <class T>
static void load_step(const Step& s) {
  for (int64_t r = 0; r < s.rows; ++r) {
    const T* a = static_cast<const T*>(s.a.data) + r * s.a.row;
    float* y = out_row(s, r);
    if constexpr (sizeof(T) <= 4 && !std::is_integral_v<T>) {
      for_vectors(s.cols, [&](int64_t c, int n) { store_some(y + c, load_some(a + c, n), n); });
    } else {
      for (int64_t c = 0; c < s.cols; ++c) y[c] = static_cast<float>(a[c]);
    }
  }
}

template <class T>
static void store_step(const Step& s) {
  for (int64_t r = 0; r < s.rows; ++r) {
    const float* a = row_of(s.a, r);
    T* y = static_cast<T*>(s.out) + r * s.out_row;
    for_vectors(s.cols, [&](int64_t c, int n) {
      F32 x = read(a, s.a.walks, c, n);
      if (s.move == Move::add) x = load_some(y + c, n) + x;
      store_some(y + c, x, n);
    });
  }
}

template <class T>
static void round_step(const Step& s) {
  for (int64_t r = 0; r < s.rows; ++r) {
    const float* a = row_of(s.a, r);
    float* y = out_row(s, r);
    for_vectors(s.cols, [&](int64_t c, int n) {
      T narrow[F32::kWidth];
      store(narrow, read(a, s.a.walks, c, n));
      store_some(y + c, load(narrow), n);
    });
  }
}

static void move_step(const Step& s) {
  const bool in = s.move == Move::load;
  switch (s.dtype) {
    case DType::bf16:
      return in ? load_step<bf16>(s) : store_step<bf16>(s);
    case DType::f16:
      return in ? load_step<fp16>(s) : store_step<fp16>(s);
    case DType::i32:
      return load_step<int32_t>(s);
    default:
      return in ? load_step<float>(s) : store_step<float>(s);
  }
}

static void run_step(const Step& s) {
  if (s.move != Move::none) return move_step(s);
  const F32 zero = zero_vector(), one = broadcast(1.0f);
  switch (s.prim) {
    case Prim::neg:
      return unary_step(s, [&](F32 x) { return zero - x; });
    case Prim::exp:
      return unary_step(s, [](F32 x) { return exp(x); });
    case Prim::log:
      return log_step(s);
    case Prim::rsqrt:
      return unary_step(s, [&](F32 x) { return one / sqrt(x); });
    case Prim::recip:
      return unary_step(s, [&](F32 x) { return one / x; });
    case Prim::sigmoid:
      return unary_step(s, [&](F32 x) { return one / (one + exp(zero - x)); });
    case Prim::relu:
      return unary_step(s, [&](F32 x) { return where_less(x, zero, zero, x); });
    case Prim::expand:
      return unary_step(s, [](F32 x) { return x; });
    case Prim::round:
      return s.dtype == DType::bf16 ? round_step<bf16>(s) : round_step<fp16>(s);
    case Prim::add:
      return binary_step(s, [](F32 x, F32 y) { return x + y; });
    case Prim::sub:
      return binary_step(s, [](F32 x, F32 y) { return x - y; });
    case Prim::mul:
      return binary_step(s, [](F32 x, F32 y) { return x * y; });
    case Prim::div:
      return binary_step(s, [](F32 x, F32 y) { return x / y; });
    case Prim::max:
      return binary_step(s, [&](F32 x, F32 y) {
        return where_less(y, x, x, where_equal(x, x, y, x));  // the first where it is NaN
      });
    case Prim::less:
      return binary_step(s, [&](F32 x, F32 y) { return where_less(x, y, one, zero); });
    case Prim::equal:
      return binary_step(s, [&](F32 x, F32 y) { return where_equal(x, y, one, zero); });
    case Prim::select:
      return select_step(s);
    case Prim::rotate:
      return rotate_step(s);
    case Prim::pick:
      return pick_step(s);
    case Prim::softmax:
    case Prim::row_sum:
    case Prim::row_lse:
      return reduce_step(s);
    case Prim::column_sum:
      return column_sum_step(s);
    default:
      return fill_step(s);
  }
}
