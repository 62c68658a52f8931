// Ops in primitives: what a recorded call of each op that may stand in a region computes.
#pragma once

#include <cstring>
#include <functional>
#include <span>
#include <string_view>

#include "autograd/tape.h"
#include "compile/graph.h"

namespace kiln::compile {

// A table that a region reads besides its tensors; element (row, column).
struct Table {
  int input = 0;  // of the graph
  int64_t rows = 0, columns = 0;
  std::function<double(int64_t row, int64_t column)> at;
};

// One call, as the tape has it.
class ExpandCall {
 public:
  virtual ~ExpandCall() = default;
  explicit ExpandCall(Builder& build, const Node& node) : b(build), node(node) {}

  virtual int in(int i) = 0;     // the value of an input
  virtual int param(int i) = 0;  // of a weight
  virtual int saved_input(
      const char* name) = 0;              // of an input without a gradient, by the name it is saved by
  virtual int out(int i, int value) = 0;  // says what output i is; returns it as it will be stored
  virtual int table(Table t) = 0;

  template <class P>
  P problem() const {
    P p;
    std::memcpy(&p, node.problem, sizeof p);
    return p;
  }

  Builder& b;
  const Node& node;
};

struct Expansion {
  std::string_view op;
  void (*expand)(ExpandCall& call);
};

// Of every op that may stand in a region.
std::span<const Expansion> expansions();
const Expansion* find_expansion(std::string_view op);

}  // namespace kiln::compile
