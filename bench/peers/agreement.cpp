#include "agreement.h"

#include <fmt/format.h>

#include <cmath>

namespace kiln {
namespace {

constexpr int64_t kRowsInDouble = 5;  // of C, from the first to the last

double element(DType t, const void* data, int64_t i) {
  return with_float(t, [&](auto zero) {
    using T = decltype(zero);
    return static_cast<double>(static_cast<Accum<T>>(static_cast<const T*>(data)[i]));
  });
}

// fp32 sums of thousands of terms are off by about 1e-6; a C in bf16 is rounded to 8 bits at the end.
double allowed_for(DType out) { return out == DType::f32 ? 1e-5 : 0x1p-7; }

double distance(double difference, double norm) {
  return std::sqrt(norm == 0 ? difference : difference / norm);
}

std::vector<int64_t> some_rows(int64_t M) {
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < kRowsInDouble; ++i) {
    const int64_t row = i * (M - 1) / (kRowsInDouble - 1);
    if (rows.empty() || row != rows.back()) rows.push_back(row);
  }
  return rows;
}

std::vector<double> row_in_double(const PeerProblem& p, int64_t m) {
  std::vector<double> row(static_cast<std::size_t>(p.N));
  with_float(p.in, [&](auto zero) {
    using T = decltype(zero);
    const T *a = static_cast<const T*>(p.a), *b = static_cast<const T*>(p.b);
    auto wide = [](T v) { return static_cast<double>(static_cast<Accum<T>>(v)); };
    auto left = [&](int64_t k) { return wide(a[p.transpose_a ? k * p.M + m : m * p.K + k]); };
    if (p.transpose_b) {  // each order of the loops walks along the rows of b
      for (int64_t n = 0; n < p.N; ++n) {
        for (int64_t k = 0; k < p.K; ++k) row[n] += left(k) * wide(b[n * p.K + k]);
      }
    } else {
      for (int64_t k = 0; k < p.K; ++k) {
        for (int64_t n = 0; n < p.N; ++n) row[n] += left(k) * wide(b[k * p.N + n]);
      }
    }
  });
  return row;
}

}  // namespace

std::string disagreement(const PeerProblem& p, const std::vector<PeerResult>& results) {
  std::string said;
  const double allowed = allowed_for(p.out);
  auto judge = [&](const std::string& who, double off) {
    if (off <= allowed) return;  // a NaN fails
    said +=
        fmt::format("{}{} is off by {:.1e}, {:.1e} is allowed", said.empty() ? "" : "; ", who, off, allowed);
  };
  std::vector<double> difference(results.size());
  double norm = 0;
  for (int64_t m : some_rows(p.M)) {
    const std::vector<double> exact = row_in_double(p, m);
    for (int64_t n = 0; n < p.N; ++n) {
      norm += exact[n] * exact[n];
      for (std::size_t i = 0; i < results.size(); ++i)
        difference[i] += std::pow(element(p.out, results[i].c, m * p.N + n) - exact[n], 2);
    }
  }
  for (std::size_t i = 0; i < results.size(); ++i) judge(results[i].name, distance(difference[i], norm));
  for (std::size_t i = 1; i < results.size(); ++i) {
    double apart = 0, first = 0;
    with_float(p.out, [&](auto zero) {
      using T = decltype(zero);
      const T *c = static_cast<const T*>(results[0].c), *other = static_cast<const T*>(results[i].c);
      for (int64_t k = 0; k < p.M * p.N; ++k) {
        const auto x = static_cast<double>(static_cast<Accum<T>>(c[k])),
                   y = static_cast<double>(static_cast<Accum<T>>(other[k]));
        apart += (x - y) * (x - y);
        first += x * x;
      }
    });
    judge(fmt::format("{} beside {}", results[i].name, results[0].name), distance(apart, first));
  }
  return said;
}

}  // namespace kiln
