// The values of a kernel as CUDA expressions, written out where they are first needed.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "compile/fuse.h"

namespace kiln::compile {

const char* cuda_type(DType t);
std::string cuda_literal(double x);
inline bool reduces(Prim p) { return p == Prim::row_sum || p == Prim::row_lse || p == Prim::softmax; }

class CudaText {
 public:
  CudaText(const Program& p, const Kernel& k) : p_(p), k_(k) {}

  void line(const std::string& s) {
    text += std::string(static_cast<std::size_t>(2 * depth), ' ') + s + "\n";
  }

  // A value of one number a row (or in all), made at row level.
  std::string scalar(int v);
  // A value at column `column`, which is "c" where the thread's own element `e` is meant.
  std::string at(int v, const std::string& column);
  // Makes what `v` needs of single numbers, which a loop over columns must not hold.
  void prepare(int v);
  // From here on numbers of columns are made anew: what is in a loop is not seen after it.
  void forget_columns() { columns_.clear(); }
  void forget_rows() {
    columns_.clear();
    scalars_.clear();
  }
  void reduced(int v, std::string name) { scalars_[v] = std::move(name); }

  const Value& value(int v) const { return p_.graph[v]; }
  bool in_memory(int v) const;
  std::string address(int v, const std::string& column) const;

  std::string text;
  int depth = 1;
  bool cached = true;  // a thread's elements of the inputs are in registers: x7[e]
  std::map<int, std::pair<std::string, std::string>> softmax;  // the row's maximum, and 1 / sum

 private:
  std::string operand(int v, const std::string& column);
  std::string compute(int v, const std::string& column);
  std::string rotate(int v, const std::string& column);
  std::string name();

  const Program& p_;
  const Kernel& k_;
  std::map<int, std::string> scalars_;
  std::map<std::pair<int, std::string>, std::string> columns_;
  int names_ = 0;
};

}  // namespace kiln::compile
