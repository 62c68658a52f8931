// What values and passes over memory cost, in the one unit that the choices of the compiler are made in:
// seconds, where the machine's rates are known, and else in proportions that hold on most machines.
#pragma once

#include "compile/graph.h"

namespace kiln::compile {

struct Rates {
  double bytes = 10e9;  // a second, through memory
  double flops = 40e9;  // a second, of vector code in cache
  bool calibrated = false;
};

// Operations of one element, an exponential counted as the dozen that it takes.
double flops_of(Prim p);
double elements(Extent e, int64_t rows);
double bytes_of(const Value& v, int64_t rows);  // as it would be stored
// Of making a value: a reduction counts the elements that it reads.
double flops_of(const Graph& g, const Value& v, int64_t rows);

}  // namespace kiln::compile
