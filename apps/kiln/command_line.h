// From arguments to a piece of work, without doing any of it.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "kiln/command.h"

namespace kiln::cli {

struct Request {
  std::string text;           // to print and be done (help, version); otherwise empty
  std::function<void()> run;  // set when text is empty
  // Then too: the command with what was typed for it; lives as long as `run`.
  const Command* command = nullptr;
};

// `args` without the program's name. Throws Error of kind usage.
Request parse_command_line(std::span<const std::string> args);

// A command with its options, and with what is typed for them. Options refer to its fields, so it stays where
// it is.
struct DeclaredCommand {
  explicit DeclaredCommand(const CommandEntry& entry);

  CommonOptions common;
  Options common_options;
  Command command;
  bool hidden;
  std::set<std::string> told;  // which former spellings
};

// Every command as it is declared, hidden ones too: what completions and the manual page are made of.
std::list<DeclaredCommand> declared_commands();

// Throw Error of kind usage unless the text is a whole number, or a device name as --device takes it.
std::uint64_t parse_seed(std::string_view text);
void check_device_name(std::string_view text);

}  // namespace kiln::cli
