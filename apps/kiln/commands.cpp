// The list of commands, in the order `kiln --help` shows them.
#include "kiln/cmd.h"

namespace kiln::cli {

std::span<const Command> commands() {
  static constexpr Command kCommands[] = {
      {"doctor", "what this machine offers: CPU, memory, GPUs, and what is amiss", "kiln doctor --json",
       add_doctor},
  };
  return kCommands;
}

}  // namespace kiln::cli
