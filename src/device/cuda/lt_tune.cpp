// Choosing algorithms by measurement. The library's first suggestion is a guess from a table; among its next
// ones there is often a faster one for the narrow shapes of a small model.
#include <algorithm>
#include <charconv>
#include <cstring>
#include <random>

#include "base/half.h"
#include "device/cuda/cuda_check.h"
#include "device/cuda/lt_plan.h"

namespace kiln {
namespace {

constexpr int kCandidates = 24;
constexpr int kMostSets = 8;              // of operands, in turn: as cold in the cache as they are in a step
constexpr std::size_t kCold = 128 << 20;  // bytes that are more than any cache: fewer sets of large operands
constexpr int kLaunches = 16;             // in a row, in one graph: no launch overhead in the figure
constexpr int kRepeats = 5;               // the median counts
constexpr double kBetter = 0.98;          // of the default's time; a smaller gain may be noise

class Operands {
 public:
  explicit Operands(std::size_t bytes) {
    KILN_CUDA_CHECK(cudaMalloc(&memory_, bytes));
    bytes_ = bytes;
  }
  ~Operands() { (void)cudaFree(memory_); }
  Operands(const Operands&) = delete;
  Operands& operator=(const Operands&) = delete;

  std::byte* at(std::size_t offset) const { return static_cast<std::byte*>(memory_) + offset; }

  // Random values of every format: zeros draw less power, and would run faster than real data.
  void fill(DType t) {
    if (filled_ == t) return;
    constexpr std::size_t kPattern = 4 << 20;
    std::vector<std::byte> pattern(kPattern);
    std::minstd_rand random(1);
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (std::size_t at = 0; at < kPattern; at += size_of(t)) {
      const float f = uniform(random);
      const double d = f;
      const bf16 b(f);
      const fp16 h(f);
      const void* from = t == DType::f64    ? static_cast<const void*>(&d)
                         : t == DType::f32  ? static_cast<const void*>(&f)
                         : t == DType::bf16 ? static_cast<const void*>(&b)
                                            : static_cast<const void*>(&h);
      std::memcpy(&pattern[at], from, size_of(t));
    }
    for (std::size_t at = 0; at < bytes_; at += kPattern) {
      KILN_CUDA_CHECK(
          cudaMemcpy(this->at(at), pattern.data(), std::min(kPattern, bytes_ - at), cudaMemcpyHostToDevice));
    }
    filled_ = t;
  }

 private:
  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
  DType filled_ = DType::i32;
};

std::size_t rounded(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

struct Sizes {
  std::size_t a, b, d;
  std::size_t all() const { return a + b + d; }
};

Sizes sizes_of(const LtKey& k) {
  const auto bytes = [&](int64_t rows, int64_t stride, int64_t batch_stride, DType t) {
    return rounded(static_cast<std::size_t>(rows * stride + (k.batch - 1) * batch_stride) * size_of(t));
  };
  return {bytes(k.a_transposed ? k.k : k.m, k.a_stride, k.a_batch_stride, k.in),
          bytes(k.b_transposed ? k.n : k.k, k.b_stride, k.b_batch_stride, k.in),
          bytes(k.m, k.d_stride, k.d_batch_stride, k.out)};
}

std::size_t sets_of(const Sizes& sizes) {
  return std::clamp<std::size_t>((kCold + sizes.all() - 1) / sizes.all(), 1, kMostSets);
}

LtMatmul problem_at(const LtKey& k, const Sizes& sizes, const std::byte* base) {
  auto* d = const_cast<std::byte*>(base) + sizes.a + sizes.b;
  return {.m = k.m,
          .n = k.n,
          .k = k.k,
          .in = k.in,
          .a = {base, k.a_stride, k.a_transposed, k.a_batch_stride},
          .b = {base + sizes.a, k.b_stride, k.b_transposed, k.b_batch_stride},
          .out = k.out,
          .d = d,
          .d_row_stride = k.d_stride,
          .accumulate = k.accumulate,
          .tf32 = k.tf32,
          .batch = k.batch,
          .d_batch_stride = k.d_batch_stride};
}

// Microseconds of one product; infinite for an algorithm that does not run.
double time_of(cublasLtHandle_t lt, const LtPlan& plan, const cublasLtMatmulAlgo_t& algorithm,
               const LtKey& key, const Operands& operands, std::byte* workspace, cudaStream_t stream) {
  const Sizes sizes = sizes_of(key);
  const std::size_t sets = sets_of(sizes);
  const auto launch = [&](int i) {
    run_plan(lt, plan, algorithm,
             problem_at(key, sizes, operands.at(static_cast<std::size_t>(i) % sets * sizes.all())), workspace,
             key.workspace, stream);
  };
  try {
    for (int i = 0; i < 2; ++i) launch(i);
  } catch (const Error&) {
    return INFINITY;
  }
  CudaGraph graph;
  CudaGraphExec exec;
  KILN_CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  try {
    for (int i = 0; i < kLaunches; ++i) launch(i);
  } catch (...) {  // the stream must leave capture, or every later call on it would fail
    if (cudaStreamEndCapture(stream, graph.out()) != cudaSuccess) (void)cudaGetLastError();
    throw;
  }
  KILN_CUDA_CHECK(cudaStreamEndCapture(stream, graph.out()));
  KILN_CUDA_CHECK(cudaGraphInstantiate(exec.out(), graph.get(), 0));
  CudaEvent begin, end;
  KILN_CUDA_CHECK(cudaEventCreate(begin.out()));
  KILN_CUDA_CHECK(cudaEventCreate(end.out()));
  std::vector<float> ms;
  for (int i = 0; i <= kRepeats; ++i) {
    KILN_CUDA_CHECK(cudaEventRecord(begin.get(), stream));
    KILN_CUDA_CHECK(cudaGraphLaunch(exec.get(), stream));
    KILN_CUDA_CHECK(cudaEventRecord(end.get(), stream));
    KILN_CUDA_CHECK(cudaEventSynchronize(end.get()));
    float one = 0;
    KILN_CUDA_CHECK(cudaEventElapsedTime(&one, begin.get(), end.get()));
    if (i > 0) ms.push_back(one);  // the first is the warm-up
  }
  std::sort(ms.begin(), ms.end());
  return ms[ms.size() / 2] * 1000.0 / kLaunches;
}

std::string hex(const cublasLtMatmulAlgo_t& algorithm) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  for (const unsigned char c :
       std::string_view(reinterpret_cast<const char*>(&algorithm), sizeof algorithm)) {
    text += kDigits[c / 16];
    text += kDigits[c % 16];
  }
  return text;
}

cublasLtMatmulAlgo_t from_hex(const MatmulChoice& choice) {
  cublasLtMatmulAlgo_t algorithm{};
  const std::string& text = choice.algorithm;
  bool good = text.size() == 2 * sizeof algorithm;
  for (std::size_t i = 0; good && i < sizeof algorithm; ++i) {
    unsigned char byte = 0;
    const char* at = text.data() + 2 * i;
    const auto [end, error] = std::from_chars(at, at + 2, byte, 16);
    good = error == std::errc{} && end == at + 2;
    std::memcpy(reinterpret_cast<char*>(&algorithm) + i, &byte, 1);
  }
  if (!good)
    throw Error(cat("the algorithm chosen for ", choice.problem, " is not one: '", text, "'"),
                "run `kiln tune` again");
  return algorithm;
}

}  // namespace

std::vector<MatmulChoice> LtMatmuls::tune(const TuneProgress& progress) {
  std::size_t most = 0, workspace_bytes = 1;
  for (const auto& [key, plan] : impl_->plans) {
    most = std::max(most, sizes_of(key).all() * sets_of(sizes_of(key)));
    workspace_bytes = std::max(workspace_bytes, key.workspace);
  }
  if (most == 0) return {};
  Operands operands(most), workspace(workspace_bytes);
  CudaStream stream;
  KILN_CUDA_CHECK(cudaStreamCreateWithFlags(stream.out(), cudaStreamNonBlocking));
  std::vector<MatmulChoice> choices;
  for (auto& [key, plan] : impl_->plans) {
    progress(choices.size(), impl_->plans.size(), key.str());
    operands.fill(key.in);
    const auto all = suggestions(impl_->lt.get(), plan, key, kCandidates);
    const auto time = [&](const cublasLtMatmulAlgo_t& a) {
      return time_of(impl_->lt.get(), plan, a, key, operands, workspace.at(0), stream.get());
    };
    MatmulChoice choice{key.str(), hex(all.front()), 0, time(all.front()), plan.calls};
    choice.us = choice.default_us;
    for (std::size_t i = 1; i < all.size(); ++i) {
      const double us = time(all[i]);
      if (us < choice.us * (choice.us == choice.default_us ? kBetter : 1.0)) {
        choice.us = us;
        choice.algorithm = hex(all[i]);
      }
    }
    impl_->chosen[choice.problem] = from_hex(choice);
    plan.algorithm = impl_->chosen[choice.problem];
    choices.push_back(std::move(choice));
  }
  return choices;
}

void LtMatmuls::use(std::span<const MatmulChoice> choices) {
  for (const MatmulChoice& c : choices) impl_->chosen[c.problem] = from_hex(c);
  impl_->plans.clear();  // they may be of other choices
}

}  // namespace kiln
