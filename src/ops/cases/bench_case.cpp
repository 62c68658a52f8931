#include "ops/cases/bench_case.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/nearest_name.h"
#include "ops/renamed.h"

namespace kiln {
namespace {

constexpr int64_t kLargestSize = int64_t{1} << 31;

[[noreturn]] void refuse(const std::string& what, std::string hint) {
  throw Error(what, std::move(hint), ErrorKind::usage);
}

std::string keys_of(const OpBench& bench) {
  std::string keys;
  for (const auto& [key, value] : bench.shapes.front().all()) keys += (keys.empty() ? "" : ", ") + key;
  return keys;
}

}  // namespace

int64_t BenchShape::operator[](std::string_view key) const {
  for (const auto& [k, v] : sizes_) {
    if (k == key) return v;
  }
  throw Error(cat("a bench shape has no size ", key));
}

void BenchShape::set(std::string_view key, int64_t value) {
  for (auto& [k, v] : sizes_) {
    if (k == key) v = value;
  }
}

std::string BenchShape::str() const {
  std::string text;
  for (const auto& [k, v] : sizes_) text += cat(text.empty() ? "" : ",", k, "=", v);
  return text;
}

BenchShape OpBench::check_shape(BenchShape shape) const {
  for (const auto& [key, most] : check_at_most.all()) shape.set(key, std::min(shape[key], most));
  return shape;
}

namespace {

// Multiply-adds, about, that one row takes as long as: the loops of a row have roots and exponentials in
// them.
double work_of_a_row(const OpCase& c, int64_t rows) {
  constexpr double kOfAnElement = 8;
  double work = 1;
  for (const CaseInput& in : c.inputs)
    if (in.kind != CaseInput::Kind::param)
      work += kOfAnElement * static_cast<double>(in.shape.numel()) / static_cast<double>(rows);
  return work;
}

}  // namespace

SampledCase OpBench::sampled(const BenchShape& shape, const Sampling& sampling) const {
  SampledCase c;
  if (sample) {
    c = sample(shape, sampling);
  } else {
    const int64_t rows = shape["rows"];
    c = sample_rows(
        [&](int64_t n) {
          BenchShape s = shape;
          s.set("rows", n);
          return make(s);
        },
        rows, work_of_a_row(make(shape), rows), sampling);
  }
  c.backward = c.backward && std::any_of(forms.begin(), forms.end(),
                                         [](const BenchForm& f) { return f.pass == Pass::backward; });
  return c;
}

std::vector<OpBench> all_op_benches() {
  std::vector<OpBench> all = {adamw_bench(),          add_bench(),
                              add_rms_norm_bench(),   attention_bench(),
                              batched_matmul_bench(), cross_entropy_bench(),
                              embedding_bench(),      layer_norm_bench(),
                              linear_bench(),         linear_cross_entropy_bench(),
                              masked_softmax_bench(), rms_norm_bench(),
                              rope_bench(),           sgd_bench(),
                              softmax_bench(),        square_sum_bench(),
                              swiglu_bench(),         weighted_sum_bench()};
  for (OpBench& bench : elementwise_benches()) all.push_back(std::move(bench));
  std::sort(all.begin(), all.end(), [](const OpBench& a, const OpBench& b) { return a.op < b.op; });
  return all;
}

OpBench find_op_bench(std::string_view asked) {
  const std::string_view name = current_op(asked);
  const std::vector<OpBench> all = all_op_benches();
  std::vector<std::string_view> names;
  std::string listed;
  for (const OpBench& bench : all) {
    if (bench.op == name ||
        std::find(bench.aliases.begin(), bench.aliases.end(), name) != bench.aliases.end())
      return bench;
    names.push_back(bench.op);
    for (const std::string& alias : bench.aliases) names.push_back(alias);
    listed += (listed.empty() ? "" : ", ") + bench.op;
  }
  const std::string near = nearest_name(name, names);
  refuse(cat("there is no bench for an op '", name, "'"),
         near.empty() ? cat("there are ", listed) : cat("did you mean '", near, "'?"));
}

BenchShape parse_bench_shape(const OpBench& bench, std::string_view text) {
  BenchShape shape = bench.shapes.front();
  if (text.empty()) refuse("--shape is empty", cat("write --shape ", shape.str()));
  std::vector<std::string_view> given;
  while (!text.empty()) {
    const auto comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
    const auto equals = item.find('=');
    if (equals == std::string_view::npos || equals == 0)
      refuse(cat("'", item, "' is not a size and its value"), cat("write --shape ", shape.str()));
    const std::string_view key = item.substr(0, equals), digits = item.substr(equals + 1);
    std::vector<std::string_view> keys;
    for (const auto& [k, v] : shape.all()) keys.push_back(k);
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) {
      const std::string near = nearest_name(key, keys);
      refuse(cat("[", bench.op, "] has no size '", key, "'"),
             near.empty() ? cat("it takes ", keys_of(bench)) : cat("did you mean '", near, "'?"));
    }
    if (std::find(given.begin(), given.end(), key) != given.end())
      refuse(cat("size ", key, " is given twice"), "several shapes are several --shape");
    given.push_back(key);
    const int64_t least = bench.shapes.front()[key] == 0 ? 0 : 1;  // 0 is an answer where it is the default
    int64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc{} || end != digits.data() + digits.size() || value < least ||
        value > kLargestSize) {
      refuse(cat("size ", key, " is '", digits, "'"),
             cat("a whole number from ", least, " to ", kLargestSize));
    }
    shape.set(key, value);
  }
  return shape;
}

}  // namespace kiln
