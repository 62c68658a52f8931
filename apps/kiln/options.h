// From arguments to options: the one place that knows CLI11.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "kiln/command.h"

namespace kiln::cli {

struct ParsedArguments {
  std::string help;                 // not empty: what to print instead of running anything
  const Command* chosen = nullptr;  // the innermost command that was named
};

// Fills in the options of `command` and of its sub-commands, first from --config FILE, then from `args`.
// `common` are the options that work behind every command. Throws Error(usage) for a wrong word.
ParsedArguments parse_arguments(Command& command, Options& common, std::span<const std::string> args);

}  // namespace kiln::cli
