// Which of its library's algorithms a device takes for a matmul. Both names are the device's own: a
// choice is written down and handed back, never looked into.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace kiln {

struct MatmulChoice {
  std::string problem;    // sizes, strides, types
  std::string algorithm;  // holds for one model of GPU and one version of the library
  double us = 0;          // of the chosen algorithm, by measurement
  double default_us = 0;  // of the library's own suggestion, in the same minute
  int64_t calls = 0;      // how often it was called before the measurement
};

// Called before each problem: how many are done, how many there are, and its name.
using TuneProgress = std::function<void(std::size_t done, std::size_t all, std::string_view problem)>;

}  // namespace kiln
