// What reading an input may cost: memory of its own thread at most 4 times the input and 1 MiB more, and one
// second of the processor for each MiB begun. While a Bounds lives its thread's allocations are counted;
// beyond the limit the program is ended with a line that says which.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kiln {

class Bounds {
 public:
  // `extra`: what the target itself needs beside the parser, such as the options of a whole program.
  explicit Bounds(std::size_t input_bytes, std::size_t extra = 0);
  ~Bounds();
  Bounds(const Bounds&) = delete;
  Bounds& operator=(const Bounds&) = delete;

 private:
  std::size_t input_bytes_, extra_;
  std::int64_t live_before_;
  double seconds_before_;
};

}  // namespace kiln
