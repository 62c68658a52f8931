// --grid key=a,b,c: the axes of a sweep, and its cells, one for each combination.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace kiln {

struct GridAxis {
  std::string key;                  // an option of the command, or a size of the op
  std::vector<std::string> values;  // each once, in the order given
};

// "ctx=128,256" or, doubling, "seq=128..4096". Throws Error(usage) for what is no axis, or is one twice.
std::vector<GridAxis> read_axes(const std::vector<std::string>& texts);

using GridCell = std::vector<std::pair<std::string, std::string>>;  // key and value, in the axes' order

std::vector<GridCell> cells_of(const std::vector<GridAxis>& axes);  // the last axis changes fastest

std::string str(const GridCell& cell);  // "size=small ctx=128"

}  // namespace kiln
