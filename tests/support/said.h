// The response to a command line: the one line of its error and its hint, or "done".
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "kiln/command_line.h"

namespace kiln::cli {

inline std::string said(const std::vector<std::string>& args) {
  try {
    parse_command_line(args).run();
  } catch (const Error& e) {
    return std::string(e.what()) + "\n" + e.hint();
  }
  return "done";
}

}  // namespace kiln::cli
