// One table per op; one row per variant. A row says what it is called, where it runs, what it cannot do, what
// it saves for backward, how much scratch it takes, what it costs, and the two functions that do the work.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "autograd/param.h"
#include "autograd/rank_context.h"
#include "base/cost.h"
#include "ops/kernels.h"

namespace kiln {

// A function pointer that cannot be left out: an op row without a cost does not compile.
template <class Signature>
class Required {
 public:
  constexpr Required(Signature* f) : f_(f) {}  // NOLINT(google-explicit-constructor)
  Required(std::nullptr_t) = delete;
  template <class... A>
  auto operator()(A&&... a) const {
    return f_(std::forward<A>(a)...);
  }

 private:
  Signature* f_;
};

// A tensor a row keeps for backward. Inputs and outputs are kept by reference; `extra` ones are allocated for
// it.
enum class SavedFrom { input, output, extra };

template <class Problem>
struct SaveDecl {
  const char* name;
  SavedFrom from;
  Shape (*shape)(const Problem&);
  DType (*dtype)(const Problem&);
};

// In the order in which a table is read, at the cost of 8 bytes a row.
template <class Op>
struct Variant {  // NOLINT(clang-analyzer-optin.performance.Padding)
  using Problem = typename Op::Problem;

  const char* name;
  DeviceType device;
  std::string (*unsupported)(const Problem&,
                             const DeviceTraits&);  // null: runs everything; else a reason or ""
  std::span<const SaveDecl<Problem>> saves;
  std::size_t (*workspace)(const Problem&, Pass);  // null: none
  Required<Cost(const Problem&, Pass)> cost;
  void (*forward)(RankContext&, const typename Op::Forward&);    // null: this build leaves the device out
  void (*backward)(RankContext&, const typename Op::Backward&);  // null likewise, or not differentiable
  Kernels kernels = {};
  // Built from other ops through the tape: the op's public function runs it, so forward and backward are
  // null, it declares no saves, and `cost` is that of its parts.
  bool composed = false;
  // Whether a row below is faster in this pass, though this one can run it: then it runs only by name.
  // Null: never.
  bool (*yields)(const Problem&, Pass) = nullptr;
};

// Backward may take another row than forward took where both leave the same things for it: where their table
// gives them one list of saves.
template <class Op>
bool same_saves(const Variant<Op>& a, const Variant<Op>& b) {
  return a.saves.data() == b.saves.data() && a.saves.size() == b.saves.size();
}

// The functions of CUDA rows exist only in CUDA builds. The rows exist in every build, because `meta`
// predicts what a GPU would do on machines that have none.
#if KILN_CUDA
#define KILN_CUDA_FN(f) f
#else
#define KILN_CUDA_FN(f) nullptr
#endif

// For ops without a backward pass.
struct NoBackward {};

// What kind of work an op is, next to its name in its own struct: what tables of times and kernels group by.
enum class OpKind : uint8_t {
  gemm,
  gemm_loss,          // a matmul and its loss in one op
  attention,          // matmuls and softmax in one op
  attention_gemm,     // its parts, where it is composed of ops
  attention_softmax,  // the same
  softmax,
  norm,
  embedding,
  elementwise,
  reduction,
  loss,
  cast,
  optimizer,
  scalars,  // what makes a step's record
};
constexpr bool is_gemm(OpKind k) { return k == OpKind::gemm || k == OpKind::attention_gemm; }
constexpr bool is_attention(OpKind k) {
  return k == OpKind::attention || k == OpKind::attention_gemm || k == OpKind::attention_softmax;
}

}  // namespace kiln
