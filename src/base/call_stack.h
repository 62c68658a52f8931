// Who called: the functions on the stack, by name. Taking a stack costs some microseconds and is for tools
// that ask for it; names come from the program's own symbol table, so a stripped program has none.
#pragma once

#include <array>
#include <string>
#include <vector>

namespace kiln {

struct CallStack {
  static constexpr int kMost = 32;
  std::array<void*, kMost> frames{};
  int count = 0;

  static CallStack here();  // the caller first
};

// The names of kiln's own functions on the stack, the innermost first, without arguments and `kiln::`. What
// belongs to templates and lambdas of a function counts as that function; neighbours of one name are one.
class FunctionNames {
 public:
  FunctionNames();  // reads the table of the running program
  bool empty() const { return functions_.empty(); }
  std::vector<std::string> of(const CallStack& stack) const;

 private:
  struct Function {
    std::size_t begin, end;
    std::string name;
  };
  const Function* at(std::size_t address) const;
  std::vector<Function> functions_;  // by address
};

}  // namespace kiln
